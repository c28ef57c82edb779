"""One partition instance as something to fetch, from its leader or a replica, and to collect
records from."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.fetch.delayed_topic import DueRecords, TopicDelay
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.model import Record, UnreadableRecord, Value
from asyncrevoke.client.protocol.messages import FetchPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.fetch.collector import RecordCollector
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer

# A broker that restarts rejects its partitions one after another until it leads them again.
LONGEST_BACKOFF = 2.0
# A corrupt batch, or brokers that name each other as the preferred replica, need a repair.
LONGEST_FAULT_BACKOFF = 10.0
_FIRST_BACKOFF = 0.1
_LONGEST_REPLICA_BACKOFF = 10.0
# Attempts to read from a replica may take at most this share of the time.
_SHARE_OF_ATTEMPTS = 0.1
_NONE = -1


class ReplicaChoice:
    """Which broker a partition is fetched from: its leader, or a preferred read replica (KIP-392).

    A leader responds to a request with a rack by naming its preferred replica, without records. If
    that replica cannot be used, the leader is asked without a rack for a while, and gives records.
    """

    def __init__(self) -> None:
        self._preferred = _NONE
        # When the leader is asked again which replica it prefers.
        self._lease_until = 0.0
        # Until when the leader is asked without a rack.
        self._leader_until = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_REPLICA_BACKOFF)

    def prefer(self, replica: int, until: float) -> None:
        """Fetch from this replica ``until`` then, while the metadata lists it."""
        self._preferred = replica
        self._lease_until = until

    def fall_back(self, now: float, *, attempt: float = 0.0, awaited: int = _NONE) -> bool:
        """Fetch from the leader for a while, longer each time: reading from a replica failed, after
        ``attempt`` seconds. Use the ``awaited`` replica as soon as the metadata lists it. False if
        a former while is not over: the leader redirects a request without a rack."""
        is_new = now >= self._leader_until
        if is_new or attempt:
            seconds = max(self._backoff.failed(), attempt / _SHARE_OF_ATTEMPTS)
            self._leader_until = now + seconds
        self._preferred = awaited
        self._lease_until = self._leader_until
        return is_new

    def served(self, node_id: int) -> bool:
        """This broker has sent records; whether it is the preferred replica."""
        if self._preferred != node_id:
            return False
        self._backoff.succeeded()
        return True

    def needs_leader(self, now: float) -> bool:
        """Whether the leader must be asked without a rack."""
        return now < self._leader_until

    def node(self, now: float, leader: Node, cluster: ClusterMetadata) -> Node:
        """The broker to fetch from."""
        if self._preferred == _NONE:
            return leader
        if now >= self._lease_until:
            self._preferred = _NONE
            return leader
        return cluster.brokers.node(self._preferred) or leader


class FollowUp(Enum):
    """What follows from taking records of a partition, once the poll has taken all of its own."""

    CORRUPT = "corrupt"  # The next batch cannot be decoded.
    NOT_DUE = "not due"  # The next record is not due.
    PASSED = "passed"  # The position has passed batches without records to deliver.


class Taken(Value, frozen=True):
    """What a poll has taken from one partition; ``has_more``: whether its buffer has more."""

    records: Sequence[Record]
    has_more: bool
    follow_up: tuple[FollowUp, ...] = ()


class PartitionCursor:
    """The fetch state of an instance, from its broker to the poll that takes its records."""

    def __init__(
        self,
        collector: RecordCollector,
        instance: PartitionInstance,
        delay: TopicDelay | None = None,
    ) -> None:
        self._collector = collector
        self.instance = instance
        self._asked_in = -1
        self._left = 0
        self._request: FetchPartition | None = None
        # The id of its topic (KIP-516), None if brokers have sent none.
        self.topic_id: bytes | None = None
        # The queue of the fetcher that has it, None while it is in flight or out of range.
        self.queue: dict[PartitionCursor, None] | None = None
        self.in_flight = False
        # Whether the last response had records.
        self.busy = False
        self.removed = False
        # What the memory budget counts for its buffer: bytes, those in responses, and records.
        self.counted = (0, 0, 0)
        # Whether it is fetched, from the low water mark up to the high one.
        self.filling = True
        self.leader: tuple[Node, int] | None = None
        # Times in a row that the metadata was older than what was read.
        self.metadata_tries = 0
        self.replica = ReplicaChoice()
        self.backoff = Backoff(_FIRST_BACKOFF, LONGEST_BACKOFF)
        self.not_before = 0.0
        self.error_reported = False
        self.corrupt_record: CorruptRecordError | None = None
        # Whether the last response without an error did not move its fetch position.
        self.nothing_fetched = False
        # The buffer whose end is out of range; not fetched until it is empty.
        self.out_of_range: RecordBuffer | None = None
        # With a delay, records are delivered when they are due.
        self._head = None if delay is None else DueRecords(delay)
        self._due_to = None if delay is None else self._find_due
        self.not_due = False

    @property
    def name(self) -> str:
        """The partition, for log lines."""
        return str(self.instance.partition)

    @property
    def is_active(self) -> bool:
        """Whether it may be fetched and delivered now."""
        instance = self.instance
        return (
            instance.state is InstanceState.ACTIVE and not self.not_due and not instance.is_blocked
        )

    def has_reached_end(self, buffer: RecordBuffer) -> bool:
        """Whether all that it is to fetch was fetched."""
        end = self.instance.fetch_end
        return end is not None and buffer.fetch_position >= end

    def reset(self) -> None:
        """Forget former errors: its position, or whether it may be fetched, has changed."""
        self.backoff.succeeded()
        self.not_before = 0.0
        self.error_reported = False
        self.corrupt_record = None
        self.out_of_range = None
        self.metadata_tries = 0
        self.filling = True
        self.not_due = False

    def start_fetch(self) -> None:
        """A fetch of it is in flight: it is in no queue."""
        self.move_to(None)
        self.in_flight = True

    def end_fetch(self, *, busy: bool) -> None:
        """The fetch has a response, or has failed. ``busy``: it brought records."""
        self.in_flight = False
        self.busy = busy

    def set_filling(self, filling: bool) -> None:
        """Whether its buffer is filled up to the high water mark."""
        self.filling = filling

    def set_counted(self, size: int, viewed: int, records: int) -> tuple[int, int, int]:
        """Set the bytes that the memory budget counts for it, how many of them are in responses,
        and the records; returns the former numbers."""
        before, self.counted = self.counted, (size, viewed, records)
        return before

    def set_leader(self, leader: tuple[Node, int]) -> None:
        """Set the leader and its epoch from the metadata."""
        self.leader = leader

    def set_nothing_fetched(self, nothing: bool) -> None:
        """Whether a response had no records for it, although its log goes on."""
        self.nothing_fetched = nothing

    def set_topic_id(self, topic_id: bytes | None) -> None:
        """Set the id of its topic."""
        self.topic_id = topic_id

    def retire(self) -> None:
        """It is no longer fetched, and a response under way is ignored."""
        self.removed = True
        self.move_to(None)

    def set_out_of_range(self, buffer: RecordBuffer | None) -> None:
        """Set the buffer whose end is outside the log, or None."""
        self.out_of_range = buffer

    def report_error(self) -> bool:
        """Whether to report its error: True only the first time."""
        is_new = not self.error_reported
        self.error_reported = True
        return is_new

    def end_error(self) -> None:
        """Report its next error again."""
        self.error_reported = False

    def recover(self) -> None:
        """Its error is over: the next backoff starts anew."""
        self.corrupt_record = None
        self.backoff.succeeded()

    def count_metadata_try(self) -> None:
        """The metadata was older than what was read."""
        self.metadata_tries += 1

    def position_checked(self) -> None:
        """Its position is in the log of its leader."""
        self.error_reported = False
        self.metadata_tries = 0

    def wait_until(self, at: float) -> None:
        """Do not fetch it before ``at``."""
        self.not_before = at

    def is_led_by(self, node: Node) -> bool:
        """Whether this broker is its leader according to the metadata."""
        return self.leader is not None and self.leader[0].node_id == node.node_id

    def delay(self, now: float, longest: float = LONGEST_BACKOFF) -> None:
        """Do not fetch it for a while, longer each time, up to ``longest`` seconds."""
        self.not_before = now + self.backoff.failed(longest)

    def move_to(self, home: dict[PartitionCursor, None] | None) -> None:
        """Move it from its collection to another."""
        if self.queue is not None:
            del self.queue[self]
        self.queue = home
        if home is not None:
            home[self] = None

    def request(self, buffer: RecordBuffer, max_bytes: int) -> FetchPartition:
        """The request for it; the same object while nothing has changed."""
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

    # --- records -----------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Records that it may give in this round (an estimate)."""
        buffer = self.instance.buffer
        if buffer is None or buffer.awaits_decoding:
            return 0
        collector = self._collector
        if self._asked_in != collector.round:
            self._asked_in = collector.round
            self._left = (
                max(collector.capacity(self.instance, collector.round), 0) if self.is_active else 0
            )
        return min(buffer.buffered, self._left)

    @property
    def empty(self) -> bool:
        """Whether its buffer has no records."""
        buffer = self.instance.buffer
        return buffer is None or not buffer.buffered

    def take(self, limit: int) -> Taken:
        """Up to ``limit`` records, as many as it may give in this round; none if the next batch
        cannot be decoded."""
        buffer = self.instance.buffer
        if buffer is None:
            return Taken([], has_more=False)
        collector = self._collector
        try:
            records = buffer.take(
                min(limit, self._left), self._due_to, unreadable=collector.unreadable
            )
        except CorruptRecordError as error:
            self.corrupt_record = error
            self._left = 0
            return Taken([], buffer.buffered > 0, (FollowUp.CORRUPT,))
        follow_up: tuple[FollowUp, ...] = (FollowUp.NOT_DUE,) if self.not_due else ()
        if records:
            if collector.unreadable and isinstance(records[-1], UnreadableRecord):
                # The last record of its round, so that it is found there.
                self._left = 0
            elif buffer.time_sought is not None:
                records = collector.leave_out_older(self.instance, buffer, records)
        if not records:
            follow_up += (FollowUp.PASSED,)
        self._left -= len(records)
        return Taken(records, buffer.buffered > 0, follow_up)

    def _find_due(self, records: Sequence[Record], first: int, end: int) -> int:
        assert self._head is not None
        due_to = self._head.due_to(records, first, end, self._collector.wall_time)
        if due_to < end:
            self.not_due = True
            self._left = 0
        return due_to

    @property
    def due_in(self) -> float | None:
        """Seconds until its next record is due, as of the last poll; None if it was due."""
        return None if self._head is None else self._head.wait
