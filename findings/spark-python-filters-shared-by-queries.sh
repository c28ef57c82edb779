#!/usr/bin/env bash
# Spark 4.2.0 and 4.3.0: the ranges that a Python data source has chosen for the filters of one query are read by
# other queries of the same load(), too. No error, rows are missing. Prints what was seen; fails if that changes.
# usage: spark-python-filters-shared-by-queries.sh [VERSION OF PYSPARK], by default 4.3.0; needs Java 17
set -euo pipefail
version=${1:-4.3.0}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "pyspark==$version" "pyarrow==26.0.1" "pandas==2.3.3" "numpy==2.4.6"
cat >"$folder/queries.py" <<'PYTHON'
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition


class Numbered(InputPartition):
    def __init__(self, number):
        self.number = number


class Reader(DataSourceReader):
    def __init__(self):
        self.only = None

    def pushFilters(self, filters):
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("part",):
                self.only = each.value
            yield each  # Spark applies all of them

    def partitions(self):
        return [Numbered(n) for n in range(3) if self.only in (None, n)]

    def read(self, partition):
        for number in range(10):
            yield partition.number, number


class Source(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "part int, id int"

    def reader(self, schema):
        return Reader()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Source)


def load():
    return spark.read.format("numbers").load()


def counts():
    table = load()
    yield "all rows", table.count(), 30
    yield "part = 0", table.where("part = 0").count(), 10
    yield "all rows, after that filter", table.count(), 30
    yield "part = 0 OR id = 1, after that filter", table.where("part = 0 OR id = 1").count(), 12
    yield "part = 1", table.where("part = 1").count(), 10
    yield "union of part = 0 and part = 1", table.where("part = 0").union(table.where("part = 1")).count(), 20
    yield "all rows of another load()", load().count(), 30


seen = []
print("pyspark", pyspark.__version__)
for query, count, stored in counts():
    print(f"{query}: {count} rows of {stored}")
    seen.append(count)
assert seen == [30, 10, 10, 10, 10, 10, 30], seen
PYTHON
PYSPARK_PYTHON="$folder/venv/bin/python" "$folder/venv/bin/python" "$folder/queries.py" 2>"$folder/log" || { tail -5 "$folder/log"; exit 1; }
echo "as seen before: filters of one query reduce the rows of others"
