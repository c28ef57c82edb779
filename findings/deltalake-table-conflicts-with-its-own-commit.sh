#!/usr/bin/env bash
# deltalake 1.6.6: DeltaTable.create_write_transaction commits, and leaves its table as it was: the next commit of the
# same object with the same application id is refused as concurrent. write_deltalake renews its table. Guessed before:
# both renew it. Prints what was seen; fails if that changes.
# usage: deltalake-table-conflicts-with-its-own-commit.sh [VERSION OF deltalake]
set -euo pipefail
version=${1:-1.6.6}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "deltalake==$version" "pyarrow==26.0.1"
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

print("deltalake", deltalake.__version__)
schema = pa.schema([("a", pa.int64())])


def properties(end):
    return CommitProperties(app_transactions=[Transaction("orders-0", end)])


def append(table, end):
    write_deltalake(table, pa.table({"a": [end]}), mode="append", commit_properties=properties(end))


def commit(table, end):
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties(end))


seen = {}
for write in append, commit:
    table = DeltaTable.create(f"{sys.argv[1]}/{write.__name__}", schema)
    write(table, 1)
    version = table.version()
    try:
        write(table, 2)
        second = "accepted"
    except CommitFailedError as error:
        second = str(error)
    seen[write.__name__] = (version, second)
    print(write.__name__, seen[write.__name__])
assert seen == {
    "append": (1, "accepted"),
    "commit": (0, "Failed to commit transaction: Concurrent transaction failed."),
}, seen
PYTHON
echo "as seen before: only write_deltalake renews the table that it has written"
