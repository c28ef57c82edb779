"""Audits a topic without gaps by its offsets: each offset is a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.comparison import Bounds, Range
from asyncrevoke.spark.audits.database import run_query
from asyncrevoke.spark.reading.dense import check_all, check_dense, dense_offsets
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.anomalies import Anomaly
    from asyncrevoke.audit.sql.text import Text
    from asyncrevoke.config import ConsumerConfig

# Takes the place of a hash of a record's content, in the journal and in the topic.
_HASH = "xxhash64(off) AS record_hash"
_UNKNOWN = ("CAST(NULL AS BIGINT) AS timestamp_us", "CAST(NULL AS BIGINT) AS key_hash")
# Kinds of anomalies that a gap in the topic would cause.
_ABSENCES = frozenset({AnomalyKind.LOST, AnomalyKind.NOT_RECORDED, AnomalyKind.SOUGHT_PAST})


class DenseSource:
    """Implements :class:`asyncrevoke.spark.audits.sources.TopicRecords`. Reads only the offsets
    that show whether the topic has gaps. Raises ConfigError if it has any."""

    compacted = False
    has_keys = False
    batches: Callable[[SparkSession, Sequence[Range]], DataFrame] | None = None

    def __init__(
        self, bootstrap: str | Sequence[str] | ConsumerConfig, topic: str, *, committed: bool
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        found = resolve_ranges(
            bootstrap,
            topic,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        check_dense(bootstrap, found)
        self.bounds = {each.partition: Bounds(each.start, each.end) for each in found}

    def fingerprints(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        query: Text,
        *,
        hashless: Sequence[int],  # noqa: ARG002 - no partition has hashes
    ) -> DataFrame:
        """See :class:`~asyncrevoke.spark.audits.sources.TopicRecords`."""
        return run_query(spark, query, {"records": self.records(spark, ranges)})

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`~asyncrevoke.spark.audits.sources.TopicRecords`. Timestamps are null."""
        parts = [self._range(each.partition, each.lo, each.hi) for each in ranges]
        offsets = dense_offsets(spark, self._bootstrap, parts, check=False)
        named = offsets.selectExpr("partition AS part", "offset AS off")
        return named.selectExpr("part", "off", *_UNKNOWN, _HASH)

    def without_content(self, journal: DataFrame) -> DataFrame:
        """A journal with the column names of the rules, whose hashes are made of offsets."""
        hashed = F.when(F.col("record_hash").isNotNull(), F.xxhash64("off"))
        return journal.withColumn("record_hash", hashed)

    def confirm(self, anomalies: Sequence[Anomaly]) -> None:
        """Raise ConfigError if an offset that an anomaly reports as lost is a gap."""
        check_all(
            self._bootstrap,
            [
                self._range(a.partition, a.offset_lo, a.offset_hi + 1)
                for a in anomalies
                if a.kind in _ABSENCES
                and a.partition is not None
                and a.offset_lo is not None
                and a.offset_hi is not None
            ],
        )

    def _range(self, partition: int, lo: int, hi: int) -> OffsetRange:
        return OffsetRange(self._topic, partition, lo, hi)
