"""The topic of an audit on Spark: a DataFrame of it, or a topic that tasks read."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString, Protocol, cast

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.comparison import Bounds, Range
from asyncrevoke.audit.topic.batch_headers import BATCHES
from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.audit.topic.topic import is_compacted
from asyncrevoke.errors import ConfigError
from asyncrevoke.runtime.net.single_request import run_blocking
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.database import run_query, small_frame
from asyncrevoke.spark.audits.hash_tasks import FINGERPRINTS, HashTask
from asyncrevoke.spark.audits.header_tasks import HeaderTask
from asyncrevoke.spark.reading.offsets import OffsetRange, find_ranges
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.sql.text import Text

_NEEDED = ("partition", "offset", "timestamp", "key", "value")


class TopicRecords(Protocol):
    """The records of a topic, with the bounds of its logs. Implemented by :class:`FrameSource` and
    :class:`TopicSource`."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """The bounds of each partition's log."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the records have hashes of keys."""
        ...

    @property
    def batches(self) -> Callable[[SparkSession, Sequence[Range]], DataFrame] | None:
        """Returns the batches that have an offset in these ranges, with the columns
        ``batch_headers.BATCHES``. None if batches are unknown."""
        ...

    def fingerprints(
        self, spark: SparkSession, ranges: Sequence[Range], query: Text, *, hashless: Sequence[int]
    ) -> DataFrame:
        """The columns ``part, bucket, records, mixed, total`` of these ranges. Several rows may
        have the same bucket.

        ``query`` computes the same from the table ``records``. In the partitions ``hashless`` the
        journal has no hashes, so fingerprints are made of offsets alone.
        """
        ...

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """The columns ``part, off, timestamp_us, key_hash, record_hash`` of these ranges."""
        ...


class FrameSource:
    """A DataFrame of one topic, with the columns of Spark's Kafka source or of this library's.

    Read it after the journal was written: offsets after its last record count as missing.
    """

    has_keys = True
    batches: Callable[[SparkSession, Sequence[Range]], DataFrame] | None = None

    def __init__(self, frame: DataFrame, *, compacted: bool = False) -> None:
        missing = [name for name in _NEEDED if name not in frame.columns]
        if missing:
            raise ConfigError(
                f"source= has no column {', '.join(missing)}: pass the DataFrame of "
                'spark.read.format("asyncrevoke") or format("kafka")'
            )
        self.compacted = compacted
        self._records = frame.selectExpr(
            "partition AS part",
            "offset AS off",
            _micros(frame),
            "if(key IS NULL, NULL, xxhash64(key)) AS key_hash",
            "xxhash64(key, value) AS record_hash",
        )
        found = self._records.groupBy("part").agg(F.min("off"), F.max("off") + 1).collect()
        rows = cast("list[tuple[int, int, int]]", found)
        self.bounds = {part: Bounds(lo, hi) for part, lo, hi in rows}

    def fingerprints(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        query: Text,
        *,
        hashless: Sequence[int],  # noqa: ARG002 - query has them
    ) -> DataFrame:
        """See :class:`TopicRecords`."""
        return run_query(spark, query, {"records": self.records(spark, ranges)})

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`TopicRecords`."""
        wanted = small_frame(spark, {"p": "INT", "lo": "BIGINT", "hi": "BIGINT"}, ranges)
        tables = {"records": self._records, "wanted": wanted}
        return run_query(
            spark,
            "SELECT /*+ BROADCAST(wanted) */ records.* FROM records JOIN wanted "
            "ON records.part = wanted.p AND records.off >= wanted.lo AND records.off < wanted.hi",
            tables,
        )


def _micros(frame: DataFrame) -> LiteralString:
    if frame.schema["timestamp"].dataType.typeName() == "long":
        return "timestamp * 1000 AS timestamp_us"
    return "unix_micros(timestamp) AS timestamp_us"


class TopicSource:
    """A topic that tasks read, with the options of ``spark.read.format("asyncrevoke")``.

    Tasks compute the fingerprints, so that no record reaches Spark.
    """

    has_keys = True

    def __init__(self, options: Mapping[str, str], *, compacted: bool | None) -> None:
        self.options = SourceOptions.of(options)
        config, topic = self.options.config(), self.options.topic
        found = run_blocking(find_ranges(config, self.options.topics, "earliest", "latest"))
        if compacted is None:
            compacted = run_blocking(is_compacted(topic, config))
        self.compacted = compacted
        self.bounds = {each.partition: Bounds(each.start, each.end) for each in found}

    def fingerprints(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        query: Text,  # noqa: ARG002 - tasks compute them in Python
        *,
        hashless: Sequence[int],
    ) -> DataFrame:
        """See :class:`TopicRecords`."""
        return self._read(spark, ranges, FINGERPRINTS, frozenset(hashless))

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`TopicRecords`."""
        return self._read(spark, ranges, RECORDS, None)

    def batches(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`TopicRecords`."""
        topic = self.options.topic
        parts = [OffsetRange(topic, each.partition, each.lo, each.hi) for each in ranges]
        tasks = min(len(parts), _MOST_TASKS)
        ids = spark.range(0, len(parts), 1, tasks)
        return map_in_arrow(ids, HeaderTask(self.options, parts).run, _ddl(BATCHES))

    def _read(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        schema: Mapping[str, str],
        hashless: frozenset[int] | None,
    ) -> DataFrame:
        topic = self.options.topic
        parts = [OffsetRange(topic, each.partition, each.lo, each.hi) for each in ranges]
        if not parts:
            return small_frame(spark, schema, [])
        task = HashTask(self.options, parts, hashless)
        # Each id is the index of a range. A task may have several.
        tasks = min(len(parts), _MOST_TASKS)
        return map_in_arrow(spark.range(0, len(parts), 1, tasks), task.run, _ddl(schema))


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


# Opening a range costs requests: with many ranges, a task reads several one after another.
_MOST_TASKS = 200
