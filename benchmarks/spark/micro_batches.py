"""Micro-batches of a stream: this library's source, Spark's Kafka connector, and a source in Python
that reads nothing, with one task and with eight: what Spark itself takes for each batch of any such
source.

``python -m benchmarks.spark.micro_batches --packages --records 120000``
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.spark.source.data_source import register
from benchmarks.spark.topic import PARTITIONS, TOPIC, parser, running, timed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

_ROWS = 6000
PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit")


class Constants(DataSource):
    """Batches of some tasks, each with one Arrow batch of zeros."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "constants"

    def schema(self) -> str:
        """One column."""
        return "number bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Reads a stream."""
        return ConstantsReader(int(self.options["batches"]), int(self.options["tasks"]))


class ConstantsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offset is the number of batches so far."""

    def __init__(self, batches: int, tasks: int) -> None:
        self._batches = batches
        self._tasks = tasks

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names
        """Before the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """After the next batch."""
        return {"batch": min(start["batch"] + 1, self._batches)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The number of batches is known."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        """One for each task."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[ArrowRecordBatch]:  # noqa: ARG002
        """Rows of one task."""
        yield cast(
            "ArrowRecordBatch", pa.record_batch({"number": pa.array([0] * (_ROWS // self._tasks))})
        )


def main() -> None:
    """Run it."""
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--batch", type=int, default=6000, help="records of a micro-batch")
    arguments = options.parse_args()
    with running(arguments) as (spark, address):
        register(spark)
        most = str(arguments.batch)
        ours = {
            "bootstrap_servers": address, "topic": TOPIC, "max_offsets_per_trigger": most,
        }  # fmt: skip
        spark.dataSource.register(Constants)
        steps = str(arguments.records // arguments.batch)
        ways = {
            "asyncrevoke": ("asyncrevoke", ours),
            "one task": ("constants", {"batches": steps, "tasks": "1"}),
            "eight tasks": ("constants", {"batches": steps, "tasks": str(PARTITIONS)}),
        }
        if arguments.jars or arguments.packages:
            connector = {
                "kafka.bootstrap.servers": address, "subscribe": TOPIC,
                "startingOffsets": "earliest", "maxOffsetsPerTrigger": most,
                "kafka.isolation.level": "read_committed",
            }  # fmt: skip
            ways["connector"] = ("kafka", connector)
        for source, given in ways.values():
            _batches(spark, source, given, [])  # cold
        for _ in range(arguments.runs):
            for name, (source, given) in ways.items():
                batches: list[dict[str, int]] = []
                run = partial(_batches, spark, source, given, batches)
                _, used = timed(run)
                _report(name, batches, used)


def _batches(
    spark: SparkSession, name: str, options: dict[str, str], found: list[dict[str, int]]
) -> None:
    """Append the milliseconds of the phases of each batch."""
    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format(name)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = cast("list[Any]", query.recentProgress)
    found.extend(dict(each.durationMs) for each in progress if each.numInputRows)


def _report(name: str, batches: list[dict[str, int]], used: dict[str, float]) -> None:
    phases = ", ".join(
        f"{phase} {statistics.median(batch.get(phase, 0) for batch in batches):.0f}"
        for phase in PHASES
    )
    spent = ", ".join(
        f"{part} {seconds / len(batches) * 1000:.0f}" for part, seconds in sorted(used.items())
    )
    print(
        f"{name:12} {len(batches)} batches, median ms: {phases}; ms of processor time a batch: "
        f"{sum(used.values()) / len(batches) * 1000:.0f} ({spent})",
        flush=True,
    )


if __name__ == "__main__":
    main()
