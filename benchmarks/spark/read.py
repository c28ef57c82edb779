"""Reading a topic into Spark: this library's source, and Spark's Kafka connector beside it.

``python -m benchmarks.spark.read --packages``, and with ``--size 1000``, ``--spread 50`` or
``--compression lz4``.

With ``--split 2`` one partition has all records, and is read by one task and by two.

With ``--prepared`` also a source in Python that passes one prepared Arrow batch to Spark again and
again: no source in Python is faster.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from asyncrevoke.client.columns.record_columns import RecordColumns
from asyncrevoke.client.model import Record
from asyncrevoke.spark.source.columns import SCHEMA
from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import PARTITIONS, TOPIC, compare, parser, running, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

_ROWS = 1000


class _Prepared(DataSource):
    """Reads nothing, and has as many rows as its option ``records``."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        batches = int(self.options["records"]) // PARTITIONS // _ROWS
        return _PreparedReader(schema.names, batches, int(self.options["size"]))


class _PreparedReader(DataSourceReader):
    def __init__(self, names: Sequence[str], batches: int, size: int) -> None:
        self._names, self._batches, self._size = names, batches, size

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[ArrowRecordBatch]:
        value = b"v" * self._size
        records = [
            Record(TOPIC, partition.value, number, 1_700_000_000_000, 0, b"%d" % number, value)
            for number in range(_ROWS)
        ]
        return repeat(RecordColumns(self._names).batch(records), self._batches)


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument(
        "--spread", type=int, default=0, help="sizes differ from --size by at most this many bytes"
    )
    options.add_argument("--compression", default="none", help="none, gzip, snappy, lz4 or zstd")
    options.add_argument("--prepared", action="store_true", help="also a source that reads nothing")
    options.add_argument("--split", type=int, help="one partition, also read by so many tasks")
    arguments = options.parse_args()
    compression = arguments.compression
    values = values_of(arguments.size, arguments.spread, compressible=compression != "none")
    split = {"minPartitions": str(arguments.split)}
    partitions = PARTITIONS if arguments.split is None else 1
    with running(arguments, values=values, compression=compression, partitions=partitions) as (
        spark,
        address,
    ):
        register(spark)

        def ours(schema: str | None = None, **options: str) -> None:
            reader = spark.read.format("asyncrevoke").option("bootstrap_servers", address)
            reader = reader.options(**options)
            if schema is not None:
                reader = reader.schema(schema)
            _take(reader.option("topic", TOPIC).load())

        def connector(**options: str) -> None:
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
            reader = reader.option("kafka.isolation.level", "read_committed").options(**options)
            _take(reader.option("subscribe", TOPIC).load())

        # By default, each task of the connector that reads a partition to its end waits half a
        # second: a request for offsets is answered after a fetch that waits for records.
        short = {"kafka.fetch.max.wait.ms": "10"}
        many = {"kafka.max.poll.records": "10000"}
        ways: dict[str, Callable[..., None]] = {
            "asyncrevoke": ours,
            "asyncrevoke, value only": partial(ours, "value binary"),
        }
        if arguments.jars or arguments.packages:
            ways = {
                "connector": connector,
                "connector, short waits": partial(connector, **short),
                "connector, also large polls": partial(connector, **short, **many),
                **ways,
            }
        if arguments.split is not None:
            ways = {
                way: run
                for name, task in ways.items()
                for way, run in ((name, task), (f"{name}, split", partial(task, **split)))
            }
        if arguments.prepared:
            spark.dataSource.register(_Prepared)
            prepared = spark.read.format("prepared").option("size", arguments.size)
            prepared = prepared.option("records", arguments.records)
            ways["one prepared batch"] = lambda: _take(prepared.load())
        compare(arguments, ways)


def _take(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
