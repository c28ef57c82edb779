"""Reading a topic into Spark: this library's source, and Spark's Kafka connector beside it.

``python -m benchmarks.spark.read --packages``, and with ``--size 1000``, ``--spread 50`` or
``--compression lz4``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import TOPIC, compare, parser, running, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument(
        "--spread", type=int, default=0, help="sizes differ from --size by at most this many bytes"
    )
    options.add_argument("--compression", default="none", help="none, gzip, snappy, lz4 or zstd")
    arguments = options.parse_args()
    compression = arguments.compression
    values = values_of(arguments.size, arguments.spread, compressible=compression != "none")
    with running(arguments, values=values, compression=compression) as (spark, address):
        register(spark)

        def ours(schema: str | None = None) -> None:
            reader = spark.read.format("asyncrevoke").option("bootstrap_servers", address)
            if schema is not None:
                reader = reader.schema(schema)
            _take(reader.option("topic", TOPIC).load())

        def connector(**options: str) -> None:
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
            reader = reader.option("kafka.isolation.level", "read_committed").options(**options)
            _take(reader.option("subscribe", TOPIC).load())

        fetches = {"kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}
        ways = {"asyncrevoke": ours, "asyncrevoke, value only": lambda: ours("value binary")}
        if arguments.jars or arguments.packages:
            ways = {
                "connector": connector,
                "connector, 8 MB fetches": lambda: connector(**fetches),
                **ways,
            }
        compare(arguments, ways)


def _take(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
