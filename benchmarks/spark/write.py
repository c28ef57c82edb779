"""Writing a DataFrame to a topic: this library's sink, and Spark's Kafka connector beside it.

``python -m benchmarks.spark.write --packages``

With ``--discard`` also a sink in Python that does nothing with the rows: no sink in Python is
faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.functions import col, lit

from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import PARTITIONS, TOPIC, compare, parser, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

_KEYS = 5000


class _Discard(DataSource):
    """Takes rows from Spark and writes them nowhere."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> _DiscardingWriter:  # noqa: ARG002
        return _DiscardingWriter()


class _DiscardingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[ArrowRecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument("--compression", default="none", help="none, gzip, snappy, lz4 or zstd")
    options.add_argument("--discard", action="store_true", help="also a sink that writes nothing")
    arguments = options.parse_args()
    with running(arguments, records_before=0) as (spark, address):
        register(spark)
        rows = spark.range(0, arguments.records, 1, PARTITIONS).select(
            (col("id") % _KEYS).cast("string").cast("binary").alias("key"),
            lit(b"v" * arguments.size).alias("value"),
        )

        def ours(frame: DataFrame) -> None:
            writer = frame.write.format("asyncrevoke").option("bootstrap_servers", address)
            writer = writer.option("compression", arguments.compression)
            writer.option("topic", TOPIC).mode("append").save()

        def connector(**given: str) -> None:
            writer = rows.write.format("kafka").option("kafka.bootstrap.servers", address)
            writer = writer.option("kafka.compression.type", arguments.compression).options(**given)
            writer.option("topic", TOPIC).mode("append").save()

        # As large batches as this library's, which wait until they are full.
        large = {"kafka.batch.size": str(256 * 1024), "kafka.linger.ms": "20"}
        ways = {
            "asyncrevoke": lambda: ours(rows),
            "asyncrevoke, no key": lambda: ours(rows.select("value")),
        }
        if arguments.discard:
            spark.dataSource.register(_Discard)
            ways["rows discarded"] = lambda: rows.write.format("discard").mode("append").save()
        if arguments.jars or arguments.packages:
            ways = {
                "connector": connector,
                "connector, 256 KB batches": lambda: connector(**large),
                **ways,
            }
        compare(arguments, ways)


if __name__ == "__main__":
    main()
