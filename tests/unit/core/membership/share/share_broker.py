"""A broker that leads all partitions of one topic and coordinates one share group, as rules that
were seen on Apache Kafka 4.4.0, and a member on it, in virtual time.

The topic has a record at each offset that is no gap. Nothing is random but what the test draws.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import (
    CancelTimer,
    CompleteRequest,
    Emit,
    Failed,
    FailureKind,
    Node,
    Replied,
    ResetConnection,
    Send,
    SetTimer,
    TimerFired,
    WakePoller,
)
from asyncrevoke.client.core.share.acquire_limits import AcquireLimits
from asyncrevoke.client.core.share_core import ShareCore
from asyncrevoke.client.model import Record
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedPartition,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRange,
    ShareAcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartition,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.core.io.effects import Effect
    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.client.protocol.records import RecordBatch

TOPIC = "jobs"
TOPIC_ID = bytes(range(16))
NODE = Node(1, "broker", 9092)
BOOTSTRAP = Node(-1, "broker", 9092)
LATENCY = 0.001


class _Batch:
    """The records at these offsets."""

    def __init__(self, offsets: Sequence[int], base: int, end: int) -> None:
        self._offsets = offsets
        self.base_offset, self.next_offset, self.count = base, end, len(offsets)
        self.size = self.viewed_size = self.unpacked_size = self.checksum = 0
        self.leader_epoch = 0

    def copy(self) -> None:
        """There is nothing to copy."""

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        return [
            Record(topic, partition, offset, 0, 0, None, b"", (), tracker_id)
            for offset in self._offsets
            if offset >= from_offset
        ]


def decode(fetched: FetchedPartition, _read_committed: bool) -> list[RecordBatch]:
    offsets = [int(text) for text in bytes(fetched.records).split()]
    return [_Batch(offsets, offsets[0], offsets[-1] + 1)] if offsets else []


@dataclass
class _Lock:
    member: str
    deadline: float
    count: int


@dataclass
class LedPartition:
    """The state of each offset: available unless it is locked or ended."""

    end: int
    gaps: frozenset[int] = frozenset()
    locks: dict[int, _Lock] = field(default_factory=dict)
    ended: dict[int, AcknowledgeType] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        for offset in [o for o, lock in self.locks.items() if lock.deadline <= now]:
            del self.locks[offset]

    def acquire(self, now: float, member: str, most: int, lock: float) -> list[AcquiredRange]:
        ranges: list[AcquiredRange] = []
        for offset in range(self.end):
            if most <= 0:
                break
            if offset in self.locks or offset in self.ended:
                continue
            most -= 1
            times = self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
            self.locks[offset] = _Lock(member, now + lock, times)
            last = ranges[-1] if ranges else None
            if last and last.last_offset == offset - 1 and last.delivery_count == times:
                ranges[-1] = AcquiredRange(
                    first_offset=last.first_offset, last_offset=offset, delivery_count=times
                )
            else:
                ranges.append(
                    AcquiredRange(first_offset=offset, last_offset=offset, delivery_count=times)
                )
        return ranges

    def acknowledge(
        self, now: float, member: str, batches: Iterable[AcknowledgementBatch], lock: float
    ) -> ErrorCode:
        wanted = [(o, b.type) for b in batches for o in range(b.first_offset, b.last_offset + 1)]
        assert wanted == sorted(wanted, key=lambda entry: entry[0]), "ranges must ascend"
        if any(o not in self.locks or self.locks[o].member != member for o, _ in wanted):
            return ErrorCode.invalid_record_state
        for offset, kind in wanted:
            if kind is AcknowledgeType.RENEW:
                self.locks[offset].deadline = now + lock
                continue
            del self.locks[offset]
            if kind is not AcknowledgeType.RELEASE:
                assert (kind is AcknowledgeType.GAP) == (offset in self.gaps)
                self.ended[offset] = kind
        return ErrorCode.none


@dataclass
class _Session:
    epoch: int
    connection: int
    partitions: set[int] = field(default_factory=set)


class ShareBroker:
    """The broker. ``lock`` is the acquisition lock timeout in seconds."""

    def __init__(self, partitions: int = 1, records: int = 20, lock: float = 30.0) -> None:
        self.partitions = {n: LedPartition(records) for n in range(partitions)}
        self.lock = lock
        # The group's share.renew.acknowledge.enable.
        self.renews = True
        self.sessions: dict[str, _Session] = {}
        self.members: dict[str, int] = {}
        self.requests: list[Request] = []
        # Errors to respond, in order, by the type of the request; applied as the rule says.
        self.errors: dict[type[Request], list[ErrorCode]] = {}

    def handle(self, now: float, message: Request, connection: int) -> tuple[float, Response]:
        """How long the broker takes, and the response."""
        self.requests.append(message)
        for partition in self.partitions.values():
            partition.expire(now)
        match message:
            case MetadataRequest():
                return 0.0, self._metadata()
            case FindCoordinatorRequest():
                return 0.0, FindCoordinatorResponse(
                    error=ErrorCode.none, node_id=1, host="broker", port=9092
                )
            case ShareGroupHeartbeatRequest():
                return 0.0, self._heartbeat(message)
            case ShareFetchRequest():
                return self._fetch(now, message, connection)
            case ShareAcknowledgeRequest():
                return 0.0, self._acknowledge(now, message)
            case _:
                raise AssertionError(message)

    def disconnected(self, connection: int) -> None:
        """The connection has closed: the sessions that it opened end, and release."""
        for member, session in list(self.sessions.items()):
            if session.connection == connection:
                self._release(member)

    def _release(self, member: str) -> None:
        session = self.sessions.pop(member)
        for number in session.partitions:
            locks = self.partitions[number].locks
            for offset in [o for o, lock in locks.items() if lock.member == member]:
                del locks[offset]

    def _metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=(BrokerMetadata(node_id=1, host="broker", port=9092),),
            topics=(
                TopicMetadata(
                    error=ErrorCode.none,
                    name=TOPIC,
                    topic_id=TOPIC_ID,
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none, partition=n, leader_id=1, leader_epoch=1
                        )
                        for n in self.partitions
                    ),
                ),
            ),
        )

    def _error(self, kind: type[Request]) -> ErrorCode:
        errors = self.errors.get(kind)
        return errors.pop(0) if errors else ErrorCode.none

    def _heartbeat(self, message: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        if (error := self._error(ShareGroupHeartbeatRequest)) is not ErrorCode.none:
            return ShareGroupHeartbeatResponse(error=error)
        if message.member_epoch == -1:
            self.members.pop(message.member_id, None)
            return ShareGroupHeartbeatResponse(error=ErrorCode.none, member_epoch=-1)
        if message.member_epoch == 0:
            assert message.topics, "a member joins with its topics"
            known = message.member_id in self.members
            self.members[message.member_id] = 1
            # The first assignment of a new member is empty.
            numbers = tuple(self.partitions) if known else ()
        elif message.member_id not in self.members:
            return ShareGroupHeartbeatResponse(error=ErrorCode.unknown_member_id)
        else:
            numbers = tuple(self.partitions)
        return ShareGroupHeartbeatResponse(
            error=ErrorCode.none,
            member_epoch=self.members[message.member_id],
            heartbeat_interval=5.0,
            assignment=((TOPIC_ID, numbers),) if numbers else (),
        )

    def _check_epoch(self, member: str, epoch: int) -> ErrorCode:
        session = self.sessions.get(member)
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch not in (-1, session.epoch):
            return ErrorCode.invalid_share_session_epoch
        return ErrorCode.none

    def _fetch(
        self, now: float, message: ShareFetchRequest, connection: int
    ) -> tuple[float, Response]:
        member = message.member_id
        error = self._error(ShareFetchRequest)
        if message.session_epoch == 0:
            assert not any(entry.acknowledgements for entry in message.partitions)
            assert message.partitions, "a session is opened with its partitions"
            # Epoch 0 over an open session releases nothing.
            self.sessions[member] = _Session(1, connection)
        elif error is ErrorCode.none:
            error = self._check_epoch(member, message.session_epoch)
            if error is ErrorCode.none:
                self.sessions[member].epoch += 1
        if error is not ErrorCode.none:
            return 0.0, ShareFetchResponse(error=error)
        session = self.sessions[member]
        session.partitions -= {gone.partition for gone in message.forgotten}
        acknowledged = self._apply(now, member, message.partitions)
        session.partitions |= {entry.partition.partition for entry in message.partitions}
        left = message.max_records
        found: dict[int, list[AcquiredRange]] = {}
        for number in sorted(session.partitions):
            ranges = self.partitions[number].acquire(now, member, left, self.lock)
            left -= sum(r.last_offset - r.first_offset + 1 for r in ranges)
            found[number] = ranges
        empty = not any(found.values()) and message.max_records > 0
        return (message.max_wait if empty else 0.0), ShareFetchResponse(
            error=ErrorCode.none,
            lock_timeout=self.lock,
            partitions=tuple(
                ShareFetchedPartition(
                    partition=TopicIdPartition(TOPIC_ID, number),
                    error=ErrorCode.none,
                    acknowledge_error=acknowledged.get(number, ErrorCode.none),
                    acquired=tuple(found.get(number, ())),
                    records=self._records(number, found.get(number, ())),
                )
                for number in sorted(found.keys() | acknowledged.keys())
            ),
        )

    def _records(self, number: int, ranges: Sequence[AcquiredRange]) -> bytes:
        """The whole of the log, as batches lie in responses, without gaps."""
        if not ranges:
            return b""
        partition = self.partitions[number]
        offsets = (o for o in range(partition.end) if o not in partition.gaps)
        return b" ".join(b"%d" % offset for offset in offsets)

    def _apply(
        self, now: float, member: str, partitions: Iterable[SharePartition]
    ) -> dict[int, ErrorCode]:
        return {
            entry.partition.partition: self._apply_to(now, member, entry)
            for entry in partitions
            if entry.acknowledgements
        }

    def _apply_to(self, now: float, member: str, entry: SharePartition) -> ErrorCode:
        batches = entry.acknowledgements
        if not self.renews and any(batch.type is AcknowledgeType.RENEW for batch in batches):
            return ErrorCode.invalid_record_state
        partition = self.partitions[entry.partition.partition]
        return partition.acknowledge(now, member, batches, self.lock)

    def _acknowledge(self, now: float, message: ShareAcknowledgeRequest) -> Response:
        member = message.member_id
        error = self._check_epoch(member, message.session_epoch)
        if message.session_epoch == 0:
            error = ErrorCode.invalid_share_session_epoch
        if error is not ErrorCode.none:
            return ShareAcknowledgeResponse(error=error)
        applied = self._apply(now, member, message.partitions)
        if message.session_epoch == -1:
            self._release(member)
        else:
            self.sessions[member].epoch += 1
        return ShareAcknowledgeResponse(
            error=ErrorCode.none,
            lock_timeout=self.lock,
            partitions=tuple(
                ShareAcknowledgedPartition(
                    partition=TopicIdPartition(TOPIC_ID, number), error=error
                )
                for number, error in applied.items()
            ),
        )


class World:
    """Members on one broker, and a clock."""

    def __init__(self, broker: ShareBroker) -> None:
        self.broker = broker
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.connections = count(1)

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), action))

    def run(self, until: float) -> None:
        """Do what is due until then."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until


class Member:
    """A core in the world. ``fate`` says of each request to the leader: None, "lost" before the
    broker has it, or "unanswered" after that; both close the connection."""

    def __init__(
        self, world: World, name: str = "m1", *, concurrency: int = 8, most: int = 16
    ) -> None:
        self.world = world
        self.fate: Callable[[Request], str | None] = lambda _request: None
        self.slow: Callable[[Request], float] = lambda _request: 0.0
        self.core = ShareCore(
            ConsumerConfig(bootstrap_servers="broker:9092", group_id="g"),
            [BOOTSTRAP],
            decode,
            [TOPIC],
            member_id=name,
            limits=AcquireLimits(concurrency, most),
        )
        self.events: list[str] = []
        self.results: dict[int, CompleteRequest] = {}
        self.woken: Callable[[], None] = lambda: None
        self._timers: dict[str, int] = {}
        self._numbers = count()
        self._connection = next(world.connections)
        self._outstanding: set[int] = set()
        self.killed = False
        self.most = most
        self.is_started = False
        # Whether no lock may be lost.
        self.fault_free = True

    def start(self) -> None:
        self.is_started = True
        self.call(self.core.start)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(self.world.now, *args, **kwargs)
        self._carry_out(self.core.take_effects(self.world.now))
        return result

    def kill(self) -> None:
        """End without a word: the connection closes."""
        self.killed = True
        self.world.broker.disconnected(self._connection)

    def _handle(self, event: Replied | Failed | TimerFired) -> None:
        if not self.killed:
            self._carry_out(self.core.handle(self.world.now, event))

    def _carry_out(self, effects: list[Effect]) -> None:
        woken = False
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case SetTimer(key, at):
                    number = self._timers[key] = next(self._numbers)
                    self.world.at(max(at, self.world.now), partial(self._fire, key, number))
                case CancelTimer(key):
                    self._timers.pop(key, None)
                case ResetConnection(node=node) if node == NODE:
                    self._disconnect()
                case Emit(event=event):
                    self.events.append(event)
                case CompleteRequest(call_id):
                    self.results[call_id] = effect
                case WakePoller():
                    woken = True
                case _:
                    pass
        if woken:
            self.woken()

    def _fire(self, key: str, number: int) -> None:
        if self._timers.get(key) == number:
            del self._timers[key]
            self._handle(TimerFired(key))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, next(self.world.connections)
        self.world.broker.disconnected(connection)

    def _send(self, send: Send) -> None:
        shares = isinstance(send.message, (ShareFetchRequest, ShareAcknowledgeRequest))
        if shares:
            assert not self._outstanding, "one request of a session at a time"
            self._outstanding.add(send.request_id)
        connection = self._connection
        fate = self.fate(send.message) if shares else None

        def arrive() -> None:
            if fate == "lost":
                self._break(send)
                return
            took, response = self.world.broker.handle(self.world.now, send.message, connection)
            if fate == "unanswered":
                self._break(send)
                return
            delay = took + LATENCY + self.slow(send.message)
            self.world.at(self.world.now + delay, partial(self._reply, send, response))

        self.world.at(self.world.now + LATENCY, arrive)

    def _break(self, send: Send) -> None:
        if not self.killed:
            self._disconnect()
            self._outstanding.discard(send.request_id)
            self._handle(Failed(send.request_id, FailureKind.DISCONNECTED, "connection reset"))

    def _reply(self, send: Send, response: Response) -> None:
        self._outstanding.discard(send.request_id)
        self._handle(Replied(send.request_id, response))
