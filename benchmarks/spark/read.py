"""Reading a topic into Spark: this library's source, and Spark's Kafka connector beside it.

``python -m benchmarks.spark.read --packages``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import TOPIC, compare, parser, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    """Run it."""
    arguments = parser(__doc__ or "").parse_args()
    with running(arguments) as (spark, address):
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
