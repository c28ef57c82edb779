"""One record batch of results: built, compressed, given a sequence, and split if too large."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from asyncrevoke.client.protocol.dependencies.checksum import crc32c

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.encoded_records import EncodedRecords

# Functions that append a record, return the number of the next record, and keep the token of an
# appended record. A plain tuple, because it is unpacked for each record.
Adder: TypeAlias = tuple[Callable[..., object], Callable[[], int], Callable[[object], None]]

P = TypeVar("P")

# Bytes of records before compression; a larger record is the only one of its batch.
BATCH_BYTES: Final = 256 * 1024
# Larger batches are compressed in a thread: gzip takes about 1 ms for this many bytes.
_COMPRESSED_AT_ONCE: Final = 16 * 1024
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
# Producer id, epoch and base sequence.
_IDENTITY: Final = struct.Struct(">qhi")
_IDENTITY_AT: Final = 43
_CRC: Final = struct.Struct(">I")


class _Added(Protocol):
    @property
    def size(self) -> int: ...


class _Builder(Protocol):
    """aiokafka's compiled builder; ``append`` returns None if the batch is full."""

    def append(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        /,
    ) -> _Added | None: ...

    def size(self) -> int: ...

    def build(self) -> bytearray: ...


class ResultSink(Protocol):
    """Receives the acknowledgements and errors of results, with the ``tokens`` given with them.

    Implemented by :class:`~asyncrevoke.client.producing.delivery.Delivery`, and for results of
    handlers by a class of ``asyncrevoke/handlers/execution/result_publisher.py``.
    """

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        """All in-sync replicas have these results, at consecutive offsets from ``offset``.

        ``offset`` is negative if it is unknown.
        """

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """These results were not acknowledged, and are not sent again."""


class SinkRun(NamedTuple):
    """Consecutive records of a batch with one sink."""

    sink: ResultSink
    tokens: Sequence[object]


class BatchSequence(NamedTuple):
    """Producer id, producer epoch and base sequence, by which brokers find duplicates (KIP-98)."""

    producer_id: int
    epoch: int
    number: int


class ResultBatch:
    """A batch of records for one partition. ``transactional``: it is part of a transaction.

    ``in_doubt``: the broker may have written it. ``chosen``: the numbers of the records whose
    partition the caller has chosen, not the partitioner.
    """

    __slots__ = (
        "_before_adding",
        "_build",
        "_builder",
        "_is_compressing",
        "_tokens",
        "_written",
        "chosen",
        "compression",
        "count",
        "expires_at",
        "in_doubt",
        "open",
        "runs",
        "sequence",
        "size",
        "transactional",
    )

    def __init__(
        self,
        expires_at: float,
        compression: int,
        limit: int = BATCH_BYTES,
        *,
        transactional: bool = False,
    ) -> None:
        self.compression = compression
        self.transactional = transactional
        builder = DefaultRecordBatchBuilder(2, compression, transactional, -1, -1, 0, limit)
        self._builder: _Builder | None = cast("_Builder", builder)
        self._build: Callable[[], bytearray] | None = self._builder.build
        self._written: bytearray | None = None
        self._is_compressing = False
        self.expires_at = expires_at
        self.chosen: set[int] = set()
        self.count = 0
        self.size = 0
        self.runs: list[SinkRun] = []
        # The tokens of the last run.
        self._tokens: list[object] = []
        # The number of these tokens, and the builder's bytes, when adder() was called.
        self._before_adding = (0, 0)
        self.sequence: BatchSequence | None = None
        self.in_doubt = False
        # Whether further records may be appended.
        self.open = True

    @classmethod
    def of_encoded(
        cls,
        expires_at: float,
        compression: int,
        records: EncodedRecords,
        sink: ResultSink,
        tokens: Sequence[object],
    ) -> ResultBatch:
        """A batch of these records alone, each with its token."""
        batch = cls(expires_at, compression)
        batch._builder, batch._build = None, partial(records.build, compression)
        batch.count, batch.size = records.count, len(records.content)
        batch.chosen.update(range(records.count))
        batch.runs.append(SinkRun(sink, tokens))
        batch.close()
        return batch

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        sink: ResultSink,
        token: object,
    ) -> int:
        """Add a record, and return its bytes, or 0 if the batch is full."""
        # Hot path: no calls of functions of our own.
        builder, count = self._builder, self.count
        assert builder is not None
        added = builder.append(count, timestamp, key, value, headers)
        if added is None:
            return 0
        self.count = count + 1
        runs = self.runs
        tokens = self._tokens if runs and runs[-1].sink is sink else self._tokens_for(sink)
        tokens.append(token)
        size = added.size
        self.size += size
        return size

    def adder(self, sink: ResultSink) -> Adder:
        """Functions that add many records with one sink; call :meth:`added` after them."""
        assert self._builder is not None
        tokens = self._tokens_for(sink)
        self._before_adding = (len(tokens), self._builder.size())
        return self._builder.append, itertools.count(self.count).__next__, tokens.append

    def added(self) -> int:
        """Count the records added by :meth:`adder`, and return their bytes."""
        assert self._builder is not None
        tokens, size = self._before_adding
        self.count += len(self._tokens) - tokens
        grown = self._builder.size() - size
        self.size += grown
        return grown

    def _tokens_for(self, sink: ResultSink) -> list[object]:
        runs = self.runs
        if not runs or runs[-1].sink is not sink:
            self._tokens = []
            runs.append(SinkRun(sink, self._tokens))
        return self._tokens

    def close(self) -> None:
        """Take no further records."""
        self.open = False

    @property
    def is_slow_to_compress(self) -> bool:
        """Whether compressing the batch, which is still to do, would block the event loop."""
        return self.compression != 0 and self._written is None and self.size > _COMPRESSED_AT_ONCE

    def begin_compression(self) -> bool:
        """Take no further records; False if :meth:`compress` was begun before."""
        self.close()
        begun, self._is_compressing = self._is_compressing, True
        return not begun

    def compress(self) -> None:
        """Build the bytes, once. May be called in a thread after :meth:`close`."""
        if self._written is None:
            assert self._build is not None
            self._written = self._build()
            self._builder = self._build = None

    def with_sequence(self, sequence: BatchSequence) -> bytearray:
        """Build the batch if needed, and return its bytes with this sequence."""
        self.close()
        self.compress()
        written = self._written
        assert written is not None
        if sequence != self.sequence:
            self.sequence = sequence
            _IDENTITY.pack_into(written, _IDENTITY_AT, *sequence)
            _CRC.pack_into(written, _CRC_AT, crc32c(memoryview(written)[_ATTRIBUTES_AT:]))
        return written

    def may_be_written(self) -> None:
        """The batch was sent, and no response says whether it was written."""
        self.in_doubt = True

    def forget_sequence(self) -> None:
        """Give the batch another sequence at the next :meth:`with_sequence`."""
        self.sequence = None

    def halves(self) -> list[ResultBatch]:
        """Split the records into two batches, without a sequence."""
        middle = self.count // 2
        halves = self._divided(self.compression, lambda number, _key: number >= middle)
        return [halves[False], halves[True]]

    def with_compression(self, compression: int) -> ResultBatch:
        """The same records in a batch with this compression, without a sequence."""
        return self._divided(compression, lambda _number, _key: True)[True]

    @property
    def is_being_compressed(self) -> bool:
        """Whether a thread compresses the batch."""
        return self._is_compressing and self._written is None

    def by_partition(
        self, partition_of: Callable[[bytes | None], int], present: int | None
    ) -> tuple[dict[int, ResultBatch], list[SinkRun]]:
        """Divide the records by the partition of their keys, into batches without a sequence.

        The ``chosen`` records stay in the ``present`` partition. If that is None, it is gone: no
        batch has them, and their tokens are returned, too.
        """
        self.close()
        self.compress()
        divided = self._divided(
            self.compression,
            lambda number, key: present if number in self.chosen else partition_of(key),
        )
        left = divided.pop(None, None)
        partitions = {number: part for number, part in divided.items() if number is not None}
        return partitions, [] if left is None else left.runs

    def _divided(
        self, compression: int, part_of: Callable[[int, bytes | None], P]
    ) -> dict[P, ResultBatch]:
        """Batches of the records with the same part, which their number and key decide."""
        assert self._written is not None
        owners = [(run.sink, token) for run in self.runs for token in run.tokens]
        parts: dict[P, ResultBatch] = {}
        records = DefaultRecordBatch(bytes(self._written))
        for number, (record, (sink, token)) in enumerate(zip(records, owners, strict=True)):
            part = part_of(number, record.key)
            batch = parts.get(part)
            if batch is None:
                batch = parts[part] = ResultBatch(
                    self.expires_at, compression, 1 << 30, transactional=self.transactional
                )
            if number in self.chosen:
                batch.chosen.add(batch.count)
            batch.append(
                record.timestamp, record.key, record.value, list(record.headers), sink, token
            )
        for batch in parts.values():
            batch.close()
        return parts

    def acknowledged(self, partition: TopicPartition, offset: int) -> None:
        """Report to the sinks; ``offset`` is the first record's, negative if it is unknown."""
        for sink, tokens in self.runs:
            sink.results_acknowledged(tokens, partition, offset)
            if offset >= 0:
                offset += len(tokens)

    def failed(self, error: Exception) -> None:
        """Report the error to the sinks."""
        for sink, tokens in self.runs:
            sink.results_failed(tokens, error)


def record_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> int:
    """The bytes of a record's key, value and headers."""
    texts = sum(len(name.encode()) + len(content or b"") for name, content in headers)
    return len(key or b"") + len(value or b"") + texts
