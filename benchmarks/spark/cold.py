"""The first table and the first batch of a stream in a new Spark application, whose processes are
not started yet: this library's source, Spark's Kafka connector, and a source in Python that reads
nothing, which shows what Spark takes to start the processes of any such source.

Each measurement is a process of its own, which starts Spark before the clock. Ratios compare with
the connector.

``python -m benchmarks.spark.cold --packages --runs 5``
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.spark.session import open_session
from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import PARTITIONS, TOPIC, fill, parser, timed, values_of, with_connector

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

_SOURCES = ("asyncrevoke", "kafka", "constants")
_KINDS = ("table", "stream")
_SECONDS = 300


class Constants(DataSource):
    """Rows of zeros in eight tasks. Its tasks import pyarrow and nothing of a client."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "constants"

    def schema(self) -> str:
        """One column."""
        return "number bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Reads a table."""
        return ConstantsTable(int(self.options["records"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Reads a stream."""
        return ConstantsStream(int(self.options["records"]))


class ConstantsTable(DataSourceReader):
    """The same number of rows in each task."""

    def __init__(self, records: int) -> None:
        self._records = records

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        return [InputPartition(number) for number in range(8)]

    def read(self, partition: InputPartition) -> Iterator[ArrowRecordBatch]:  # noqa: ARG002
        """Rows of one task."""
        from asyncrevoke.client.columns.arrow import pa

        columns = {"number": pa.array([0] * (self._records // 8))}
        yield cast("ArrowRecordBatch", pa.record_batch(columns))


class ConstantsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One batch of a table."""

    def __init__(self, records: int) -> None:
        self._table = ConstantsTable(records)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names
        """Before the batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """After the batch."""
        return {"batch": 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The number of batches is known."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Those of the table."""
        return self._table.partitions()

    def read(self, partition: InputPartition) -> Iterator[ArrowRecordBatch]:
        """Rows of one task."""
        return self._table.read(partition)


class First(NamedTuple):
    """The seconds of a first query, and its processor time without the broker's."""

    seconds: float
    processor_seconds: float


def main() -> None:
    """Run it."""
    options = parser((__doc__ or "").partition("\n\n")[0])
    options.set_defaults(records=10_000)
    options.add_argument("--one", nargs=3, metavar=("KIND", "SOURCE", "ADDRESS"), help="a child")
    arguments = options.parse_args()
    if arguments.one:
        print(json.dumps(_measure(arguments)))
        return
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        values = values_of(arguments.size)
        asyncio.run(fill(broker.bootstrap_servers, arguments.records, values))
        found: dict[tuple[str, str], list[First]] = {}
        for _ in range(arguments.runs):
            for kind in _KINDS:
                for source in _SOURCES:
                    first = _in_new_process(kind, source, broker.bootstrap_servers)
                    found.setdefault((kind, source), []).append(first)
    for kind in _KINDS:
        theirs = _medians(found[kind, "kafka"])
        for source in _SOURCES:
            each = _medians(found[kind, source])
            times = ", ".join(f"{first.seconds:.2f}" for first in found[kind, source])
            print(
                f"{kind:7} {source:12} {each.seconds:6.2f} s ({times}) "
                f"{each.seconds / theirs.seconds:5.2f}x   processor time "
                f"{each.processor_seconds:6.2f} s "
                f"{each.processor_seconds / theirs.processor_seconds:5.2f}x"
            )


def _in_new_process(kind: str, source: str, address: str) -> First:
    words = [sys.executable, "-m", "benchmarks.spark.cold", "--one", kind, source, address]
    if source == "kafka":
        words.append("--packages")
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_SECONDS)
    return First(*json.loads(done.stdout.splitlines()[-1]))


def _measure(arguments: argparse.Namespace) -> First:
    kind, source, address = arguments.one
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    if arguments.packages:
        builder = with_connector(builder)
    builder.getOrCreate().sparkContext.setLogLevel("ERROR")
    spark = open_session()
    start = {"startingOffsets": "earliest"}
    given = {
        "asyncrevoke": {"bootstrap_servers": address, "topic": TOPIC, **start},
        "kafka": {"kafka.bootstrap.servers": address, "subscribe": TOPIC, **start},
        "constants": {"records": str(arguments.records)},
    }[source]
    # What Spark itself does first is not of a source.
    spark.range(1000).write.format("noop").mode("overwrite").save()
    register(spark)
    spark.dataSource.register(Constants)
    seconds, used = timed(lambda: _read(spark, kind, source, given))
    spark.stop()
    return First(seconds, sum(used.values()))


def _read(spark: SparkSession, kind: str, source: str, given: dict[str, str]) -> None:
    if kind == "table":
        table = spark.read.format(source).options(**given).load()
        table.write.format("noop").mode("overwrite").save()
        return
    stream = spark.readStream.format(source).options(**given).load()
    with tempfile.TemporaryDirectory() as folder:
        writer = stream.writeStream.format("noop").option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()


def _medians(measured: list[First]) -> First:
    return First(*(statistics.median(each) for each in zip(*measured, strict=True)))


if __name__ == "__main__":
    main()
