#!/usr/bin/env bash
# pyarrow 18.0.0 and 26.0.1: pyarrow.compute.binary_slice without `stop`, which its documentation makes "the end of the
# string", raises "Negative buffer resize" for two values or more; for one, three and some other counts it works, as it
# does with any `stop`, and utf8_slice_codeunits always does. Prints what was seen; fails if that changes.
# usage: pyarrow-binary-slice-fails-without-stop.sh [VERSION OF pyarrow]
set -euo pipefail
version=${1:-26.0.1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pyarrow==$version"
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
import pyarrow.compute as pc

print("pyarrow", pa.__version__)
failed = []
for count in range(1, 9):
    texts = pa.array(["abcdef"] * count)
    values = texts.cast(pa.binary())
    assert pc.utf8_slice_codeunits(texts, 4).to_pylist() == ["ef"] * count
    assert pc.binary_slice(values, 4, 100).to_pylist() == [b"ef"] * count
    try:
        assert pc.binary_slice(values, 4).to_pylist() == [b"ef"] * count
        print(f"{count} values: as documented")
    except pa.ArrowInvalid as error:
        print(f"{count} values: {error}")
        failed.append(count)
assert 2 in failed and 1 not in failed, failed
PYTHON
echo "as seen before: without stop, two values are not sliced"
