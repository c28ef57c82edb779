"""The batches of one transaction, and how far each partition has been written."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.errors import PublishError, TransactionError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.record_batch import Adder, BatchSequence, ResultBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asyncrevoke.client.producing.message import RecordFields
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopic, ResultTopics
    from asyncrevoke.client.producing.record_batch import ResultSink
    from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
    from asyncrevoke.client.protocol.messages import Request

_SEQUENCES: Final = 2**31
_NEVER: Final = float("inf")
_TOPIC_OF: Final = itemgetter(0)
_FIRST_BACKOFF: Final = 0.02
_LONGEST_BACKOFF: Final = 1.0


class RecordsRefusedError(PublishError):
    """Records of a transaction are refused for good, and the transaction is aborted. ``tokens``
    are those of the refused records."""

    def __init__(
        self, topic: str, reason: str, tokens: Sequence[object], *, of_record: bool = False
    ) -> None:
        self.tokens = tokens
        super().__init__(topic, reason, of_record=of_record)


class TransactionTimedOutError(TransactionError):
    """A transaction was not written in time, and is aborted: a shorter one may succeed."""


class PartitionBatches:
    """The batches for one partition in a transaction. One is in flight at a time.

    ``number`` is the sequence number of the next batch. Within an epoch numbers go on after an
    abort: brokers drop a batch with the number of an aborted one as a duplicate.
    """

    __slots__ = ("_backoff", "acknowledged", "in_flight", "left", "number", "partition", "retry_at")

    def __init__(self, partition: TopicPartition, number: int = 0) -> None:
        self.partition = partition
        self.number = number
        self.left: deque[ResultBatch] = deque()
        # Each with the offset of its first record, -1 if it is unknown.
        self.acknowledged: list[tuple[ResultBatch, int]] = []
        # The request with the first batch that is left.
        self.in_flight: Request | None = None
        self.retry_at = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)

    def content(self, producer_id: int, epoch: int) -> bytearray:
        """The bytes of the first batch that is left."""
        return self.left[0].with_sequence(BatchSequence(producer_id, epoch, self.number))

    def written(self, offset: int) -> None:
        """The first batch is acknowledged, at this offset."""
        batch = self.left.popleft()
        self.in_flight = None
        self.retry_at = 0.0
        self._backoff.succeeded()
        self.number = (self.number + batch.count) % _SEQUENCES
        self.acknowledged.append((batch, offset))

    def retry(self, now: float) -> None:
        """Send the same batch with the same sequence again after a backoff."""
        self.in_flight = None
        self.retry_at = now + self._backoff.failed()

    def begin_again(self) -> None:
        """The transaction is done again: all batches are left, in their first order."""
        self.left.extendleft(batch for batch, _ in reversed(self.acknowledged))
        self.acknowledged.clear()
        self.in_flight = None
        self.retry_at = 0.0

    @property
    def tokens(self) -> list[object]:
        """Those of all records that are left."""
        return [token for batch in self.left for run in batch.runs for token in run.tokens]

    @property
    def first_tokens(self) -> list[object]:
        """Those of the records of the first batch that is left."""
        return [token for run in self.left[0].runs for token in run.tokens]

    def replace_first(self, parts: Sequence[ResultBatch]) -> None:
        """Send these in place of the first batch that is left."""
        self.left.popleft()
        self.left.extendleft(reversed(parts))


def transaction_batches(
    topics: ResultTopics,
    records: Iterable[RecordFields],
    compression: int,
    timestamp: int,
    sink: ResultSink,
) -> list[tuple[TopicPartition, ResultBatch]]:
    """The batches of records whose topics are known. Raises RecordsRefusedError."""
    batches: list[tuple[TopicPartition, ResultBatch]] = []
    by_topic: dict[str, _TopicBatches] = {}
    for topic, in_a_row in groupby(records, _TOPIC_OF):
        of_topic = by_topic.get(topic)
        if of_topic is None:
            of_topic = by_topic[topic] = _TopicBatches(topics[topic])
        known, cached, adders = of_topic.topic, of_topic.cached, of_topic.adders
        for record in in_a_row:
            _, number, key, value, headers, at = record
            if number is None:
                number = cached(key)
                if number is None:
                    number = known.partition_of(key)
            elif not 0 <= number < known.count:
                why = f"there is no partition {number}: it has {known.count}"
                raise RecordsRefusedError(topic, why, (record,), of_record=True)
            append, next_number, take = adders.get(number, _NO_ADDER)
            if at is None:
                at = timestamp
            while append(next_number(), at, key, value, headers) is None:
                # The first one, or one for which the open batch has no room.
                batch = ResultBatch(_NEVER, compression, transactional=True)
                batches.append((TopicPartition(topic, number), batch))
                append, next_number, take = of_topic.begin(number, batch.adder(sink), batch)
            take(record)
    for of_topic in by_topic.values():
        of_topic.end()
    return batches


class _TopicBatches:
    """The open batch of each partition of a topic."""

    def __init__(self, topic: ResultTopic) -> None:
        self.topic = topic
        self.adders: dict[int, Adder] = {}
        self._open: dict[int, ResultBatch] = {}
        # Of keys, and of None; it returns None for a key whose partition is unknown.
        self.cached = topic.partitioner.cached(topic.count).get

    def begin(self, number: int, adder: Adder, batch: ResultBatch) -> Adder:
        """Begin this batch of a partition, after the open one."""
        former = self._open.get(number)
        if former is not None:
            former.added()
            former.close()
            topic = self.topic
            topic.partitioner.batch_closed(number, topic.led, topic.count)
        self._open[number], self.adders[number] = batch, adder
        return adder

    def end(self) -> None:
        """All records are added."""
        for batch in self._open.values():
            batch.added()
            batch.close()


# Of a partition without a batch: appends no record.
_NO_ADDER: Final[Adder] = (lambda *_: None, lambda: 0, lambda _: None)


class PlacedRecord(NamedTuple):
    """The token of a record, and where it is; ``offset`` is -1 if the broker has not said it."""

    token: object
    partition: TopicPartition
    offset: int


class Transaction:
    """Batches and offsets that become visible together, or not at all. It has one or both.

    ``error``: why it is to fail; None while it may be committed. ``give_up_at``: when it fails if
    it is not committed by then. ``ended`` is called with the error, or None after the commit, and
    ``written``, if there is one, when each batch is acknowledged, before anything is committed;
    that one must not call the producer.
    """

    def __init__(
        self,
        batches: Iterable[tuple[TopicPartition, ResultBatch]],
        give_up_at: float,
        offsets: GroupOffsets | None = None,
        ended: Callable[[Exception | None], None] = lambda _error: None,
        written: Callable[[Iterable[PlacedRecord]], None] | None = None,
    ) -> None:
        self._written = written
        self.partitions: dict[TopicPartition, PartitionBatches] = {}
        for partition, batch in batches:
            if partition not in self.partitions:
                self.partitions[partition] = PartitionBatches(partition)
            self.partitions[partition].left.append(batch)
        self.offsets = offsets
        assert self.partitions or offsets is not None
        self.give_up_at = give_up_at
        self._ended = ended
        self.error: Exception | None = None
        # What the coordinator has added to it.
        self.added: set[TopicPartition] = set()
        self.is_group_added = False

    @property
    def is_written(self) -> bool:
        """Whether each batch is acknowledged."""
        return not any(batches.left for batches in self.partitions.values())

    @property
    def missing(self) -> list[TopicPartition]:
        """Its partitions that the coordinator has not added."""
        return [partition for partition in self.partitions if partition not in self.added]

    @property
    def is_group_missing(self) -> bool:
        """Whether the coordinator has not added the group of its offsets."""
        return self.offsets is not None and not self.is_group_added

    @property
    def has_added(self) -> bool:
        """Whether the coordinator has added anything."""
        return bool(self.added) or self.is_group_added

    def report_if_written(self) -> bool:
        """Whether each batch is acknowledged, which is reported if so."""
        if self.is_written and self._written is not None:
            self._written(self._placed())
        return self.is_written

    def _placed(self) -> Iterator[PlacedRecord]:
        for partition, batches in self.partitions.items():
            for batch, first in batches.acknowledged:
                tokens = [token for run in batch.runs for token in run.tokens]
                for number, token in enumerate(tokens):
                    yield PlacedRecord(token, partition, -1 if first < 0 else first + number)

    def begin_again(self) -> None:
        """Nothing of it is visible: all is left to do."""
        self.added.clear()
        self.is_group_added = False
        for batches in self.partitions.values():
            batches.begin_again()

    def committed(self) -> None:
        """Report to the sinks of the batches, and then the end."""
        for partition, batches in self.partitions.items():
            for batch, offset in batches.acknowledged:
                batch.acknowledged(partition, offset)
        self._ended(None)

    def failed(self, error: Exception) -> None:
        """Report the error to the sinks of the batches, and then as the end."""
        for batches in self.partitions.values():
            batches.begin_again()
            for batch in batches.left:
                batch.failed(error)
        self._ended(error)
