"""The topic that an audit on Spark compares with a journal, in the forms in which it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, LiteralString, Protocol, Self, cast

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from typing_extensions import override

from asyncrevoke.audit.offsets import ALL_USED, Bounds, Range, UnusedHashes
from asyncrevoke.audit.sql.text import compose
from asyncrevoke.audit.topic.record_hashes import RECORDS, columns
from asyncrevoke.audit.topic.topic import Topic, is_compacted
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.journal.format.arrow import RecordBatch, Table, pa, pc
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.packed_rows import BLOBS, PackRecords
from asyncrevoke.spark.reading.offsets import find_ranges
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from asyncrevoke.audit.compared_topic import AuditedTopic
    from asyncrevoke.audit.sql.database import AuditDatabase

_NEEDED: Final = ("partition", "offset", "timestamp", "key", "value")
# The records that a task passes on at once.
_MANY: Final = 200_000


class TopicReader(Protocol):
    """Opens the records of some partitions in a task. Implemented by :class:`BrokerRecords`,
    :class:`PackedTopic` and :class:`DenseTopic`."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """The bounds of each partition's log."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the records have hashes of keys."""
        ...

    @property
    def has_content(self) -> bool:
        """Whether the hashes are of content. Otherwise they are :func:`offset_marks`."""
        ...

    def opened(self, database: AuditDatabase, bounds: Mapping[int, Bounds]) -> AuditedTopic:
        """The records of the partitions in ``bounds``. ``database`` has the records that other
        tasks have packed in the table ``packed``."""
        ...


@dataclass(frozen=True)
class BrokerRecords:
    """Reads the topic from its brokers, with the options of the source."""

    options: SourceOptions
    bounds: Mapping[int, Bounds]
    compacted: bool

    has_keys = True
    has_content = True

    def opened(
        self,
        database: AuditDatabase,  # noqa: ARG002 - no task packs records
        bounds: Mapping[int, Bounds],
    ) -> Topic:
        """See :class:`TopicReader`."""
        return Topic(
            self.options.topic,
            self.options.config(),
            bounds=bounds,
            compacted=self.compacted,
            no_progress_timeout=self.options.no_progress_timeout,
        )


def broker_records(options: Mapping[str, str], *, compacted: bool | None) -> BrokerRecords:
    """Ask the brokers for the bounds of the topic's partitions and, if ``compacted`` is None,
    whether the topic is compacted."""
    known = SourceOptions.of(options)
    config = known.config()
    found = run_blocking(find_ranges(config, known.topics, "earliest", "latest"))
    if compacted is None:
        compacted = run_blocking(is_compacted(known.topic, config))
    return BrokerRecords(
        known,
        {candidate.partition: Bounds(candidate.start, candidate.end) for candidate in found},
        compacted,
    )


@dataclass(frozen=True)
class _TopicOfTask(ABC):
    """A topic that a task reads from no broker: a :class:`TopicReader`, and when it is opened, an
    :class:`~asyncrevoke.audit.compared_topic.AuditedTopic`."""

    bounds: Mapping[int, Bounds]
    compacted: bool = False
    database: AuditDatabase | None = None

    has_batches = False

    def opened(self, database: AuditDatabase, bounds: Mapping[int, Bounds]) -> Self:
        """See :class:`TopicReader`."""
        return replace(self, bounds=bounds, database=database)

    async def read(
        self,
        ranges: Sequence[Range],
        take: Callable[[RecordBatch], None],
        take_headers: Callable[[RecordBatch], None] | None = None,
        unused: UnusedHashes = ALL_USED,  # noqa: ARG002 - none has to be computed
    ) -> None:
        """See :class:`~asyncrevoke.audit.compared_topic.AuditedTopic`."""
        assert take_headers is None
        for offset_range in ranges:
            self._pass(offset_range, take)

    @abstractmethod
    def _pass(self, wanted: Range, take: Callable[[RecordBatch], None]) -> None:
        """Pass the records of a range to ``take``."""


class PackedTopic(_TopicOfTask):
    """The records of a DataFrame, which other tasks have packed in the table ``packed``."""

    has_keys = True
    has_content = True

    @override
    def _pass(self, wanted: Range, take: Callable[[RecordBatch], None]) -> None:
        assert self.database is not None
        query = compose(
            "SELECT part, off, timestamp_us, key_hash, record_hash FROM packed"
            " WHERE part = {part} AND off >= {lo} AND off < {hi}",
            part=wanted.partition,
            lo=wanted.lo,
            hi=wanted.hi,
        )
        self.database.pass_rows(query, _MANY, take)


class RecordsFrame:
    """A DataFrame of one topic, with the columns of Spark's Kafka source or of this library's.

    Read it after the journal was written: offsets after its last record count as missing.
    """

    def __init__(self, frame: DataFrame, *, compacted: bool) -> None:
        missing = [name for name in _NEEDED if name not in frame.columns]
        if missing:
            raise ConfigError(
                f"source= has no column {', '.join(missing)}: pass the DataFrame of "
                'spark.read.format("asyncrevoke") or format("kafka")'
            )
        self._records = frame.selectExpr(
            "partition AS part",
            "offset AS off",
            _micros(frame),
            "if(key IS NULL, NULL, xxhash64(key)) AS key_hash",
            "xxhash64(key, value) AS record_hash",
        )
        found = self._records.groupBy("part").agg(F.min("off"), F.max("off") + 1).collect()
        rows = cast("list[tuple[int, int, int]]", found)
        self.reader = PackedTopic({part: Bounds(lo, hi) for part, lo, hi in rows}, compacted)

    def packed(self, tasks: int) -> DataFrame:
        """The records in blobs of so many tasks. Lazy."""
        return map_in_arrow(self._records, PackRecords(tasks).run, BLOBS)


def _micros(frame: DataFrame) -> LiteralString:
    if frame.schema["timestamp"].dataType.typeName() == "long":
        return "timestamp * 1000 AS timestamp_us"
    return "unix_micros(timestamp) AS timestamp_us"


class DenseTopic(_TopicOfTask):
    """Takes each offset for a record, and reads no topic. Timestamps and keys are null."""

    has_keys = False
    has_content = False

    @override
    def _pass(self, wanted: Range, take: Callable[[RecordBatch], None]) -> None:
        for lo in range(wanted.lo, wanted.hi, _MANY):
            offsets = np.arange(lo, min(lo + _MANY, wanted.hi), dtype=np.int64)
            part = np.full(len(offsets), wanted.partition, np.int32)
            marks = offset_marks(offsets)
            take(columns(RECORDS, len(offsets), part, offsets, None, None, marks))


def offset_marks(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers that stand for the content of records with these offsets (SplitMix64)."""
    mixed = offsets.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def with_marks(rows: Any) -> Table:  # noqa: ANN401 - pyarrow's
    """Rows of a journal with :func:`offset_marks` in place of hashes of content."""
    offsets = pc.fill_null(rows["off"], 0).to_numpy()
    marks = pc.if_else(pc.is_valid(rows["record_hash"]), pa.array(offset_marks(offsets)), None)
    at = rows.schema.get_field_index("record_hash")
    return rows.set_column(at, "record_hash", marks)
