#!/usr/bin/env bash
# pyarrow 18.0.0 to 26.0.1: pyarrow.json refuses null for a struct that may be null, if a field of the struct may not.
# A list that may be null, of elements that may not, is read. Guessed before: both are read, as Arrow's schema says,
# and as pyarrow.array makes both. Prints what was seen; fails if that changes.
# usage: pyarrow-json-refuses-null-of-a-struct-with-required-fields.sh [VERSION OF pyarrow]
set -euo pipefail
version=${1:-26.0.1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pyarrow==$version"
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
from pyarrow import json

required = pa.field("b", pa.int64(), nullable=False)
kinds = {"struct": pa.struct([required]), "list": pa.list_(required)}


def read(lines, kind):
    options = json.ParseOptions(explicit_schema=pa.schema([("a", kind)]))
    try:
        return json.read_json(pa.BufferReader(lines), parse_options=options)["a"].to_pylist()
    except pa.ArrowInvalid as error:
        return str(error)


print("pyarrow", pa.__version__)
seen = {}
for name, kind in kinds.items():
    assert pa.array([None], kind).to_pylist() == [None]
    for value in (b'{"a":null}', b"{}"):
        seen[name, value] = read(value + b"\n", kind)
        print(f"{name}, {value.decode()}: {seen[name, value]}")
assert read(b'{"a":{"b":1}}\n', kinds["struct"]) == [{"b": 1}]
assert seen == {
    ("struct", b'{"a":null}'): "JSON parse error: a required field was null",
    ("struct", b"{}"): "JSON parse error: a required field was null",
    ("list", b'{"a":null}'): [None],
    ("list", b"{}"): [None],
}, seen
PYTHON
echo "as seen before: a null struct is refused for the fields that it does not have"
