"""One partition instance as something to fetch for and to drain from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.backoff import Backoff
from asyncrevoke.core.fetch.delayed_topic import DueRecords
from asyncrevoke.core.fetch.replica_choice import ReplicaChoice
from asyncrevoke.core.partition.instance import InstanceState
from asyncrevoke.errors import CorruptRecordError
from asyncrevoke.model import UnreadableRecord
from asyncrevoke.protocol.messages import FetchPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.model import Record

_FIRST_BACKOFF = 0.1
# A broker that restarts refuses its partitions one after another until it leads them again.
LONGEST_BACKOFF = 2.0
# A corrupt batch, or brokers that name each other as the replica to read from, stay so until
# somebody corrects them.
LONGEST_FAULT_BACKOFF = 10.0


class DeliveryCapacity(Protocol):
    """How much may be delivered."""

    def partition_capacity(self, instance: PartitionInstance, round_number: int, /) -> int:
        """How many records of one partition may be delivered in this drain."""
        ...


class DrainContext(Protocol):
    """What sources ask before they give anything."""

    limits: DeliveryCapacity
    # Grows with every drain: what was asked before it is asked anew.
    round: int
    # Sources whose next batch cannot be decoded.
    corrupt: list[PartitionCursor]
    # The wall clock in the drain that is under way, in seconds since the epoch.
    wall_time: float
    # Sources whose next record is not due.
    not_due: list[PartitionCursor]
    # Sources that were drained of batches without anything to deliver.
    empty: list[PartitionCursor]
    # Whether what cannot be read is delivered as UnreadableRecord, or ends the drain as an error.
    unreadable: bool


class PartitionCursor:
    """Where an instance stands between its broker and the user."""

    def __init__(
        self,
        drain_context: DrainContext,
        instance: PartitionInstance,
        delay: TopicDelay | None = None,
    ) -> None:
        self._drain_context = drain_context
        self.instance = instance
        self._asked_in = -1
        self._left = 0
        self._request: FetchPartition | None = None
        # Of the topic that its positions are of (KIP-516), None if brokers have told none.
        self.topic_id: bytes | None = None
        # The one collection that holds it now, None while it is in flight or out of range.
        self.queue: dict[PartitionCursor, None] | None = None
        self.in_flight = False
        # Whether the last answer brought anything.
        self.busy = False
        self.removed = False
        # Bytes of its buffer that the memory budget has counted.
        self.counted = 0
        # From the low water mark up to the high one it is fetched for.
        self.filling = True
        self.leader: tuple[Node, int] | None = None
        # How often the metadata was found older than what was read.
        self.metadata_tries = 0
        self.replica = ReplicaChoice()
        self.backoff = Backoff(_FIRST_BACKOFF, LONGEST_BACKOFF)
        self.not_before = 0.0
        self.error_reported = False
        self.corrupt_record: CorruptRecordError | None = None
        # The buffer whose end is out of range; fetched no further until it is drained.
        self.out_of_range: RecordBuffer | None = None
        # Its topic's records are delivered when they are due; whether the next one is not.
        self._head = None if delay is None else DueRecords(delay)
        self._due_to = None if delay is None else self._find_due
        self.not_due = False

    @property
    def name(self) -> str:
        """The partition, for log lines."""
        return str(self.instance.partition)

    @property
    def is_active(self) -> bool:
        """Whether it may be fetched for and delivered from now."""
        instance = self.instance
        return (
            instance.state is InstanceState.ACTIVE and not self.not_due and not instance.is_blocked
        )

    def reset(self) -> None:
        """Its position, or whether it may flow, has changed: forget what went wrong before."""
        self.backoff.succeeded()
        self.not_before = 0.0
        self.error_reported = False
        self.corrupt_record = None
        self.out_of_range = None
        self.metadata_tries = 0
        self.filling = True
        self.not_due = False

    def start_fetch(self) -> None:
        """It is in a fetch that is in flight, and in no queue."""
        self.move_to(None)
        self.in_flight = True

    def end_fetch(self) -> None:
        """That fetch was answered, or has failed."""
        self.in_flight = False

    def set_busy(self, busy: bool) -> None:
        """Whether the last fetch brought records of it."""
        self.busy = busy

    def set_filling(self, filling: bool) -> None:
        """Whether its buffer is filled up to the high water mark."""
        self.filling = filling

    def set_counted(self, size: int) -> int:
        """The memory budget counts this many bytes of its buffer; returns how many it did."""
        before, self.counted = self.counted, size
        return before

    def set_leader(self, leader: tuple[Node, int]) -> None:
        """The metadata name this leader and its epoch."""
        self.leader = leader

    def set_topic_id(self, topic_id: bytes | None) -> None:
        """Brokers know its topic by this id."""
        self.topic_id = topic_id

    def retire(self) -> None:
        """It is fetched no more; an answer that is under way is ignored."""
        self.removed = True
        self.move_to(None)

    def set_out_of_range(self, buffer: RecordBuffer | None) -> None:
        """What follows this buffer is outside the log; None: nothing is known to be."""
        self.out_of_range = buffer

    def report_error(self) -> bool:
        """The user is told of an error of it; False if that is reported already."""
        is_new = not self.error_reported
        self.error_reported = True
        return is_new

    def end_error(self) -> None:
        """A further error of it is to be reported again."""
        self.error_reported = False

    def recover(self) -> None:
        """What was wrong with it is over: the next error waits no longer than the first."""
        self.corrupt_record = None
        self.backoff.succeeded()

    def count_metadata_try(self) -> None:
        """The metadata was found older than what was read."""
        self.metadata_tries += 1

    def position_checked(self) -> None:
        """Its position is in the log of its leader."""
        self.error_reported = False
        self.metadata_tries = 0

    def wait_until(self, at: float) -> None:
        """Fetch nothing for it before then."""
        self.not_before = at

    def is_led_by(self, node: Node) -> bool:
        """Whether this broker is its leader, as far as is known."""
        return self.leader is not None and self.leader[0].node_id == node.node_id

    def delay(self, now: float, longest: float = LONGEST_BACKOFF) -> None:
        """Nothing is fetched for it for a while, longer each time, up to ``longest`` seconds."""
        self.not_before = now + self.backoff.failed(longest)

    def move_to(self, home: dict[PartitionCursor, None] | None) -> None:
        """Leave one collection for another."""
        if self.queue is not None:
            del self.queue[self]
        self.queue = home
        if home is not None:
            home[self] = None

    def request(self, buffer: RecordBuffer, max_bytes: int) -> FetchPartition:
        """What to ask for; the same object as long as nothing has changed."""
        asked = self._request
        leader_epoch = -1 if self.leader is None else self.leader[1]
        if (
            asked is None
            or asked.offset != buffer.fetch_position
            or asked.max_bytes != max_bytes
            or asked.leader_epoch != leader_epoch
        ):
            asked = self._request = FetchPartition(
                partition=self.instance.partition,
                offset=buffer.fetch_position,
                max_bytes=max_bytes,
                leader_epoch=leader_epoch,
            )
        return asked

    # --- what a fair drain asks --------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Records that it may give in this round (an estimate)."""
        buffer = self.instance.buffer
        if buffer is None or buffer.awaits_decoding:
            return 0
        if self._asked_in != self._drain_context.round:
            self._asked_in = self._drain_context.round
            self._left = self._capacity() if self.is_active else 0
        return min(buffer.buffered, self._left)

    def _capacity(self) -> int:
        context = self._drain_context
        return max(context.limits.partition_capacity(self.instance, context.round), 0)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to give, now or when it is let through."""
        buffer = self.instance.buffer
        return buffer is None or not buffer.buffered

    def take(self, limit: int) -> list[Record]:
        """Take records from the buffer, no more than it may give in this round; none if the next
        batch cannot be decoded."""
        buffer = self.instance.buffer
        if buffer is None:
            return []
        try:
            unreadable = self._drain_context.unreadable
            records = buffer.take(min(limit, self._left), self._due_to, unreadable=unreadable)
        except CorruptRecordError as error:
            self.corrupt_record = error
            self._drain_context.corrupt.append(self)
            self._left = 0
            return []
        if not records:
            self._drain_context.empty.append(self)
        elif unreadable and isinstance(records[-1], UnreadableRecord):
            # It is the last one of its drain: who looks for it has one place to look.
            self._left = 0
            return records
        self._left -= len(records)
        return records

    def _find_due(self, records: Sequence[Record], first: int, end: int) -> int:
        assert self._head is not None
        due_to = self._head.due_to(records, first, end, self._drain_context.wall_time)
        if due_to < end:
            self.not_due = True
            self._left = 0
            self._drain_context.not_due.append(self)
        return due_to

    @property
    def due_in(self) -> float | None:
        """Seconds until its next record is due, as of the last drain; None if it was."""
        return None if self._head is None else self._head.wait
