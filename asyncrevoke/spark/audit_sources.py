"""The topic that an audit on Spark compares with: a DataFrame, or what tasks read by themselves."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.comparison import Bounds, Range
from asyncrevoke.audit.topic import is_compacted
from asyncrevoke.audit.views import SUMMED
from asyncrevoke.config.security import security_options
from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.hashing import key_hash, key_hashes, mixture, offset_hashes, record_hashes
from asyncrevoke.journal.schema import BUCKET
from asyncrevoke.spark.arrow import map_in_arrow, pa, pc
from asyncrevoke.spark.audit_database import over, small_frame
from asyncrevoke.spark.offsets import OffsetRange, find_ranges, run_blocking
from asyncrevoke.spark.range_reader import RangeReader
from asyncrevoke.spark.read_ahead import read_ahead
from asyncrevoke.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.spark.arrow import RecordBatch

RECORDS = "part INT, off BIGINT, timestamp_us BIGINT, key_hash BIGINT, record_hash BIGINT"
FINGERPRINTS = "part INT, bucket BIGINT, records BIGINT, mixed BIGINT, total BIGINT"
_NEEDED = ("partition", "offset", "timestamp", "key", "value")


class Bounded(Protocol):
    """Records, and where their logs begin and end."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """Of each partition."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether records vanish from the middle of the log."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether hashes of keys are known."""
        ...

    def fingerprints(
        self, spark: SparkSession, ranges: Sequence[Range], query: str, *, bare: Sequence[int]
    ) -> DataFrame:
        """``part, bucket, records, mixed, total`` of these ranges, of the partitions in
        ``bare`` by offsets alone; ``query`` would give them of the table ``records``, and a bucket
        may be in several rows."""
        ...

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """``part, off, timestamp_us, key_hash, record_hash`` of these ranges."""
        ...


class FrameSource:
    """A DataFrame with the columns of Spark's or of this library's Kafka source, of one topic.

    It has to have been read after the journal was written: what lies beyond its last record is
    taken to be not there.
    """

    has_keys = True

    def __init__(self, frame: DataFrame, *, compacted: bool = False) -> None:
        missing = [name for name in _NEEDED if name not in frame.columns]
        if missing:
            raise ConfigError(
                f"source= has no column {', '.join(missing)}: give what "
                'spark.read.format("asyncrevoke") or format("kafka") gives of the topic'
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
        query: str,
        *,
        bare: Sequence[int],  # noqa: ARG002 - the query knows
    ) -> DataFrame:
        """See :class:`Bounded`."""
        return over(spark, query, {"records": self.records(spark, ranges)})

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`Bounded`."""
        wanted = small_frame(spark, {"p": "INT", "lo": "BIGINT", "hi": "BIGINT"}, ranges)
        tables = {"records": self._records, "wanted": wanted}
        return over(
            spark,
            "SELECT /*+ BROADCAST(wanted) */ records.* FROM records JOIN wanted "
            "ON records.part = wanted.p AND records.off >= wanted.lo AND records.off < wanted.hi",
            tables,
        )


def _micros(frame: DataFrame) -> str:
    kind = frame.schema["timestamp"].dataType.typeName()
    return f"{'timestamp * 1000' if kind == 'long' else 'unix_micros(timestamp)'} AS timestamp_us"


class TopicSource:
    """A topic that tasks read, with the options of ``spark.read.format("asyncrevoke")``.

    The fingerprints are made where the records are read: nothing but them reaches Spark.
    """

    has_keys = True

    def __init__(self, options: Mapping[str, str], *, compacted: bool | None) -> None:
        self.options = SourceOptions.of(options)
        config, topic = self.options.config(), self.options.topic
        found = run_blocking(find_ranges(config, topic, "earliest", "latest"))
        if compacted is None:
            compacted = run_blocking(is_compacted(topic, **_connection(config)))
        self.compacted = compacted
        self.bounds = {each.partition: Bounds(each.start, each.end) for each in found}

    def fingerprints(
        self,
        spark: SparkSession,
        ranges: Sequence[Range],
        query: str,  # noqa: ARG002 - made in Python
        *,
        bare: Sequence[int],
    ) -> DataFrame:
        """See :class:`Bounded`."""
        return self._read(spark, ranges, FINGERPRINTS, frozenset(bare))

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """See :class:`Bounded`."""
        return self._read(spark, ranges, RECORDS, None)

    def _read(
        self, spark: SparkSession, ranges: Sequence[Range], schema: str, bare: frozenset[int] | None
    ) -> DataFrame:
        topic = self.options.topic
        parts = [OffsetRange(topic, each.partition, each.lo, each.hi) for each in ranges]
        if not parts:
            return small_frame(spark, dict(each.split() for each in schema.split(", ")), [])
        task = _Reading(self.options, parts, bare)
        # The identifier says which ranges a task has: one or more.
        tasks = min(len(parts), _MOST_TASKS)
        return map_in_arrow(spark.range(0, len(parts), 1, tasks), task.run, schema)


def _connection(config: ConsumerConfig) -> dict[str, Any]:
    return {
        "bootstrap_servers": ",".join(config.bootstrap_servers),
        "client_id": config.client_id,
        **security_options(config),
    }


# Reading begins anew for each range, so that many of them are done one after another by a task.
_MOST_TASKS = 200
_AT_ONCE = 2_000
# Records in a batch for Spark.
_ENOUGH = 64_000


class _Reading(NamedTuple):
    """What a task does: records, or fingerprints, of partitions in ``bare`` by offsets alone."""

    options: SourceOptions
    parts: Sequence[OffsetRange]
    bare: frozenset[int] | None

    def run(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Read what the identifiers name."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                part = self.parts[int(number)]
                yield from (self._records if self.bare is None else self._fingerprints)(part)

    def _fingerprints(self, part: OffsetRange) -> Generator[RecordBatch]:
        buckets: dict[int, tuple[int, int, int]] = {}
        for records in self._read(part):
            if self.bare and part.partition in self.bare:
                hashes = offset_hashes([record.offset for record in records])
            else:
                hashes = _hashes(records)
            first, last = records[0].offset // BUCKET, records[-1].offset // BUCKET
            if first == last:
                _mix(buckets, first, hashes)
                continue
            for bucket in range(first, last + 1):
                inside = [
                    h for r, h in zip(records, hashes, strict=True) if r.offset // BUCKET == bucket
                ]
                if inside:
                    _mix(buckets, bucket, array("Q", inside))
        numbers = list(buckets)
        counted = list(buckets.values())
        yield _batch(
            FINGERPRINTS,
            [
                list(repeat(part.partition, len(numbers))),
                numbers,
                [count for count, _, _ in counted],
                [_signed(mixed) for _, mixed, _ in counted],
                [total for _, _, total in counted],
            ],
        )

    def _records(self, part: OffsetRange) -> Generator[RecordBatch]:
        for records in self._read(part):
            yield _batch(
                RECORDS,
                [
                    list(repeat(part.partition, len(records))),
                    [record.offset for record in records],
                    [record.timestamp * 1000 for record in records],
                    [None if r.key is None else _signed(key_hash(r.key)) for r in records],
                    [_signed(each) for each in _hashes(records)],
                ],
            )

    def _read(self, part: OffsetRange) -> Generator[Sequence[Any]]:
        reader = RangeReader(
            self.options.config(),
            part,
            no_progress_timeout=self.options.no_progress_timeout,
            most=_AT_ONCE,
        )
        return read_ahead(reader, reader.read)


def _hashes(records: Sequence[Any]) -> array[int]:
    keys = [record.key for record in records]
    return record_hashes(keys, [record.value for record in records], key_hashes(keys))


def _mix(buckets: dict[int, tuple[int, int, int]], bucket: int, hashes: array[int]) -> None:
    count, mixed, total = buckets.get(bucket, (0, 0, 0))
    numbers = pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])
    summed = pc.call_function("bit_wise_and", [numbers, pa.scalar(SUMMED, pa.uint64())])
    total += pc.call_function("sum", [summed]).as_py()
    buckets[bucket] = count + len(hashes), mixed ^ mixture(hashes), total


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _batch(schema: str, columns: Sequence[Sequence[int | None]]) -> RecordBatch:
    declared = [column.split() for column in schema.split(", ")]
    types = {"INT": pa.int32(), "BIGINT": pa.int64()}
    arrays = [pa.array(v, types[kind]) for v, (_, kind) in zip(columns, declared, strict=True)]
    names = [name for name, _ in declared]
    return cast("RecordBatch", pa.RecordBatch.from_arrays(arrays, names))
