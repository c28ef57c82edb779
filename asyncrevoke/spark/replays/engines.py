"""The engines of replays: which ranges a replay still has to do, in which order, and how tasks read
their records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.replays.target import find_consumer
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.reading.range_reader import FETCH_BYTES
from asyncrevoke.spark.reading.range_splits import NO_SPLITS, RangeSplits
from asyncrevoke.spark.replays.range_task import RESULT_SCHEMA, RangeTask
from asyncrevoke.spark.replays.rows_task import COLUMNS, RowsTask
from asyncrevoke.spark.source.columns import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from asyncrevoke.client.config import ConsumerConfig, IsolationLevel
    from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
    from asyncrevoke.replays.opened_handlers import Target
    from asyncrevoke.spark.reading.offsets import OffsetRange
    from asyncrevoke.spark.replays.progress import Address

RangeOrder: TypeAlias = Literal["in stages", "in a task"] | None

Engine: TypeAlias = Literal["direct", "source", "jvm"]

# Options that a replay sets itself, by their names in this library's reader and in Spark's.
_SET_BY_REPLAY = (
    "assign", "subscribe", "subscribepattern", "subscribe_pattern", "topic", "ranges", "start",
    "end",
    "startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp",
    "startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "bootstrap_servers",
    "kafka.bootstrap.servers", "isolation_level", "kafka.isolation.level", "include_headers",
    "includeheaders", "include_unreadable", "no_progress_timeout", "failondataloss", "missing",
    "min_offsets_per_task", "minpartitions", "min_partitions", "maxrecordsperpartition",
    "max_records_per_partition",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The settings that all tasks of a replay share. ``source_options`` are options of Spark's
    reader."""

    target: Target
    isolation_level: IsolationLevel
    no_progress_timeout: float
    max_errors: int | None
    engine: Engine = "direct"
    source_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    report_to: Address | None = None
    dead_letters: DeadLetterFilter | None = None
    splits: RangeSplits = NO_SPLITS

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise ConfigError(
                f'engine={shown_option(self.engine)}: use "direct", "source" or "jvm"'
            )
        if self.source_options and self.engine == "direct":
            raise ConfigError(
                'source_options= is for engine="source" and "jvm": "direct" reads with the '
                "options of the consumer"
            )
        decided = [name for name in self.source_options if name.lower() in _SET_BY_REPLAY]
        if decided:
            raise ConfigError(
                f"source_options= has {decided[0]}, which a replay sets by its ranges and its "
                "arguments (bootstrap_servers=, isolation_level=, no_progress_timeout=, "
                "min_partitions=, max_records_per_partition=): leave it out; deleted records are "
                "always an error"
            )

    @property
    def order_of_ranges(self) -> RangeOrder:
        """How the ranges of a partition are kept in order."""
        if self.engine == "direct":
            return None if self.target.order_by is None else "in a task"
        unordered = self.target.order_by is None
        together = self.engine == "source" or bool(self.splits.given)
        return None if unordered and together else "in stages"

    def reporting_to(self, address: Address) -> ReplayJob:
        """A copy of this job whose tasks report progress to ``address``."""
        return replace(self, report_to=address)

    def apply(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The result rows of these ranges. Lazy."""
        if self.engine == "direct":
            of_tasks = tasks(ranges, ordered=self.order_of_ranges == "in a task")
            task = RangeTask(
                self.target,
                of_tasks,
                isolation_level=self.isolation_level,
                no_progress_timeout=self.no_progress_timeout,
                max_errors=self.max_errors,
                report_to=self.report_to,
                dead_letters=self.dead_letters,
            )
            numbers = spark.range(0, len(of_tasks), 1, len(of_tasks))
            return map_in_arrow(numbers, task, RESULT_SCHEMA)
        read = self._by_source if self.engine == "source" else self._by_connectors
        rows = RowsTask(
            self.target,
            ranges,
            max_errors=self.max_errors,
            report_to=self.report_to,
            dead_letters=self.dead_letters,
        )
        return map_in_arrow(read(spark, ranges).select(*COLUMNS), rows, RESULT_SCHEMA)

    def _config(self) -> ConsumerConfig:
        return find_consumer(self.target.name).config

    def _servers(self, config: ConsumerConfig) -> str:
        return self.target.bootstrap_servers or ",".join(config.bootstrap_servers)

    def _by_source(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        from asyncrevoke.spark.source.data_source import register

        register(spark)
        options = self.options_of_source(ranges[0].topic)
        options["ranges"] = json.dumps(
            [[*offset_range[:4], offset_range.topic_id] for offset_range in ranges]
        )
        frame = spark.read.format("asyncrevoke").options(**options).load()
        return frame.withColumn("timestamp", _millis(frame))

    def options_of_source(self, topic: str) -> dict[str, str]:
        """The options of this library's data source: the connection of the consumer and
        ``source_options``.

        Raises ConfigError if the consumer has an ``ssl_context`` and ``source_options`` no
        ``ssl_cafile``.
        """
        config = self._config()
        if config.ssl_context is not None and "ssl_cafile" not in self.source_options:
            raise ConfigError(
                "the consumer's ssl_context cannot be sent to Spark's reader: pass "
                'source_options={"ssl_cafile": ...}, or use engine="direct"'
            )
        sasl = config.security_protocol.startswith("SASL")
        options = {
            "bootstrap_servers": self._servers(config),
            "security_protocol": config.security_protocol,
            "sasl_mechanism": config.sasl_mechanism if sasl else None,
            "sasl_plain_username": config.sasl_plain_username,
            "sasl_plain_password": config.sasl_plain_password,
            "isolation_level": self.isolation_level,
            "no_progress_timeout": str(self.no_progress_timeout),
            "include_headers": "true",
            "include_unreadable": "true",
            "topic": topic,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return given | dict(self.source_options)

    def _by_connectors(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The rows of these ranges. The connector reads one range of a partition at a time."""
        frames = [
            self._by_connector(spark, some) for some in stages(ranges, None, order="in stages")
        ]
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _by_connector(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F  # noqa: N812 - of the extra

        config = self._config()
        topic = ranges[0].topic
        options = {
            "kafka.bootstrap.servers": self._servers(config),
            "kafka.isolation.level": self.isolation_level,
            "assign": json.dumps({topic: [offset_range.partition for offset_range in ranges]}),
            "startingOffsets": json.dumps({topic: {str(r.partition): r.start for r in ranges}}),
            "endingOffsets": json.dumps({topic: {str(r.partition): r.end for r in ranges}}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.max.partition.fetch.bytes": str(FETCH_BYTES),
            # At the end of the log, the broker answers the connector's request for offsets after a
            # fetch that waits for records, by default for half a second.
            "kafka.fetch.max.wait.ms": "10",
        }
        options |= self.source_options
        if config.security_protocol != "PLAINTEXT" and (
            "kafka.security.protocol" not in {name.lower() for name in options}
        ):
            raise ConfigError(
                f"the consumer uses {config.security_protocol}, which Spark's connector configures "
                'by other options: pass source_options={"kafka.security.protocol": ...}, or '
                'use engine="direct"'
            )
        try:
            frame = spark.read.format("kafka").options(**options).load()
        except AnalysisException as error:
            raise ConfigError(
                'engine="jvm" needs the jars of Spark\'s Kafka connector: start Spark with '
                "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:<version of Spark>, or use "
                f'engine="direct", which needs no jars ({error.getCondition()})'
            ) from error
        renamed = frame.withColumnRenamed("timestampType", "timestamp_type")
        # Spark's connector fails a task whose records it cannot read.
        readable = renamed.withColumn("unreadable", F.lit(None).cast(UNREADABLE.partition(" ")[2]))
        return readable.withColumn("timestamp", _millis(readable))


def _millis(frame: DataFrame) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.unix_millis(frame["timestamp"])


def unfinished_ranges(
    planned: Iterable[OffsetRange], done: Iterable[tuple[str, int, int, int]]
) -> list[OffsetRange]:
    """The planned ranges without the offsets of finished ranges, which are given as (topic,
    partition, start, end)."""
    by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for topic, partition, start, end in done:
        by_partition.setdefault((topic, partition), []).append((start, end))
    left: list[OffsetRange] = []
    for offset_range in planned:
        start = offset_range.start
        for begun, ended in sorted(
            by_partition.get((offset_range.topic, offset_range.partition), ())
        ):
            if begun > start:
                left.append(offset_range._replace(start=start, end=min(begun, offset_range.end)))
            start = max(start, ended)
        left.append(offset_range._replace(start=start))
    return [remaining for remaining in left if remaining.start < remaining.end]


def stages(
    ranges: Sequence[OffsetRange], most: int | None, *, order: RangeOrder
) -> list[list[OffsetRange]]:
    """Split ranges into at most ``most`` offsets each (None: not split), and group them into
    stages.

    The ranges of a stage are replayed in parallel. With ``order="in stages"`` a stage has at most
    one range of a partition, in the order of offsets. With ``"in a task"`` it has ranges of a
    partition with at most ``most`` offsets together, which one task replays in order.
    """
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range[:3]):
        parts = by_partition.setdefault((offset_range.topic, offset_range.partition), [])
        step = most or max(1, offset_range.size)
        parts.extend(
            offset_range._replace(start=at, end=min(at + step, offset_range.end))
            for at in range(offset_range.start, offset_range.end, step)
        )
    if order is None:
        everything = [part for parts in by_partition.values() for part in parts]
        return [everything] if everything else []
    groups = [
        _grouped(parts, most) if order == "in a task" else [[part] for part in parts]
        for parts in by_partition.values()
    ]
    return [
        [part for group in stage if group is not None for part in group]
        for stage in zip_longest(*groups)
    ]


def _grouped(parts: Sequence[OffsetRange], most: int | None) -> list[list[OffsetRange]]:
    groups: list[list[OffsetRange]] = []
    size = 0
    for part in parts:
        if groups and (most is None or size + part.size <= most):
            groups[-1].append(part)
            size += part.size
        else:
            groups.append([part])
            size = part.size
    return groups


def tasks(ranges: Iterable[OffsetRange], *, ordered: bool) -> list[list[OffsetRange]]:
    """The ranges of each task, which replays them one after another.

    If ``ordered``, a task has all ranges of a partition, in the order of offsets. Otherwise a task
    has one range.
    """
    if not ordered:
        return [[offset_range] for offset_range in ranges]
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range[:3]):
        by_partition.setdefault((offset_range.topic, offset_range.partition), []).append(
            offset_range
        )
    return list(by_partition.values())
