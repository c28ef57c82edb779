"""The whole core against answers that no broker should give, at moments when no one awaits them.

An input is a header of four bytes, which says what consumer it is, and operations of three bytes: a
code, and the seed of everything that is drawn for it. So an operation can be left out of an input
and the others stay what they are.
"""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import msgspec
from simulation.cluster.large_batches import decode_some_large

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.consumer_core import ConsumerCore
from asyncrevoke.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    BrokerProbed,
    CancelTimer,
    CompleteRequest,
    Compute,
    ConnectionSilent,
    DecodeBatch,
    Effect,
    Emit,
    Event,
    Failed,
    FailureKind,
    Node,
    ProbeBroker,
    Replied,
    Send,
    SetTimer,
    TimerFired,
)
from asyncrevoke.core.io.outbox import LARGE_FROM
from asyncrevoke.core.membership.classic.assignment_user_data import (
    AssignmentUserData,
    encode_assignment_user_data,
)
from asyncrevoke.core.partition.completion_map import decode as decode_map
from asyncrevoke.errors import AsyncRevokeError
from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.protocol.messages import (
    BrokerMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    EpochEnd,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
    PartitionMetadata,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicMetadata,
)
from asyncrevoke.protocol.subscription import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from asyncrevoke.testing.fake_kafka.partition_log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS = {"orders": 3, "bills": 2}
PARTITIONS = tuple(
    TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)
)
IDS = {topic: topic.encode().ljust(16, b"-") for topic in TOPICS}
BOOTSTRAP = [Node(-1, "boot", 9092)]
# Effects of one call: a rebalance of all partitions, closing and the end of all requests are less.
MOST_EFFECTS = 250
# Timers in a row that are set for no later than now.
MOST_TIMERS_AT_ONCE = 100
HEADER = 4
OPERATION = 3
# Of a batch in the simulation: base offset, offset after the batch, records, leader epoch.
_HEADERS = struct.Struct(">qqii")

NUMBERS = (
    *(-(2**63), -(2**31) - 1, -(2**31), -1000, -3, -2, -1, 0, 1, 2, 3, 5, 7, 20, 21, 100),
    *(2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1),
)
NARROW = tuple(number for number in NUMBERS if -(2**31) <= number < 2**31)
# The fields of 64 bits.
WIDE = frozenset(
    ("offset", "timestamp", "high_watermark", "last_stable_offset", "log_start_offset")
)
TEXTS = (
    "",
    "orders",
    "bills",
    "other",
    ".",
    "x" * 300,
    "m-1",
    "m-2",
    "range",
    "a b",
    "\udfff",
    "é\n",
)
BLOBS = (b"", b"\0", b"\xff" * 7, bytes(16), b"\0\3\0\0\0\0", b"x" * 5000)
HOSTILE = (*("damage",) * 6, "fail", "wrong", "late", "unasked", "twice")
USUAL = (
    *("answer",) * 56,
    *("poll",) * 16,
    *("complete",) * 10,
    *("timer",) * 12,
    *("decode",) * 5,
    *("produce",) * 4,
    *("commit", "seek", "pause", "resume") * 2,
    *("subscribe", "unsubscribe", "delay", "stop", "close", "abandon", "drop", "lookup"),
    *("leap", "stand in", "silent", "probed") * 2,
)
# By the code of the operation.
FIRST_USUAL = 88
NAMES = (*HOSTILE * 8, *(USUAL * 2)[: 256 - FIRST_USUAL])
# What a consumer refuses once it closes.
NOT_WHEN_CLOSING = frozenset(
    ("commit", "lookup", "seek", "pause", "resume", "subscribe", "unsubscribe")
)


class CoreBroke(Exception):  # noqa: N818 - it names what has happened
    """A promise of the core that does not hold."""


@cache
def config_of(kind: int) -> ConsumerConfig:
    """One of the consumers that there are."""
    protocol = ("classic", "classic", "consumer", "auto")[kind & 3]
    mode = ("ack", "processed", "ack", "manual")[kind >> 2 & 3]
    options: dict[str, Any] = {"group_protocol": protocol, "commit_mode": mode}
    if protocol != "consumer":
        options["assignors"] = (("range",), ("cooperative-sticky",))[kind >> 4 & 1]
    if kind >> 5 & 1:
        options["group_instance_id"] = "static"
    if kind >> 6 & 1:
        options["auto_offset_reset"] = "error"
    if kind >> 7 & 1 and mode != "manual":
        options["revoke_gaps"] = "drop"
    return ConsumerConfig(group_id="g", **options)


class CoreTarget:
    """Runs operations on one core; keeps book of what the user was given and has completed."""

    name: ClassVar[str] = "core"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: Random) -> bytes:
        """A consumer, and up to 120 operations, of which few or many are hostile."""
        data = bytearray(random.randbytes(HEADER + OPERATION * random.randrange(10, 120)))
        share = random.choice((0.0, 0.03, 0.1, 0.3))
        for at in range(HEADER, len(data), OPERATION):
            codes = (0, FIRST_USUAL) if random.random() < share else (FIRST_USUAL, 256)
            data[at] = random.randrange(*codes)
        return bytes(data)

    def check(self, data: bytes) -> None:
        """Run it; raises what the core raises, and ``CoreBroke``."""
        data = data.ljust(HEADER, b"\0")
        world = World(config_of(data[0]), data[1], Random(data[2] << 8 | data[3]), self.counts)
        world.begin(quickly=data[1] & 1 == 0)
        for at in range(HEADER, len(data) - OPERATION + 1, OPERATION):
            world.draw = Random(data[at + 1] << 8 | data[at + 2])
            world.operate(NAMES[data[at]])
        world.end()


def _whole(records: bytes | memoryview) -> bytes | memoryview:
    """``records`` without what is left of a header at its end."""
    return records[: len(records) // _HEADERS.size * _HEADERS.size]


class World:
    """A core and everything around it."""

    def __init__(
        self, config: ConsumerConfig, kind: int, draw: Random, counts: Counter[str]
    ) -> None:
        self.draw = draw
        self.counts = counts
        self.config = config
        self.now = 1000.0
        self.open: dict[int, Send] = {}
        self.past: list[Send] = []
        # What is done beside the event loop.
        self.decodes: list[DecodeBatch | Compute] = []
        self.timers: dict[str, float] = {}
        self.probes: list[ProbeBroker] = []
        self.standby: BackgroundHeartbeat | None = None
        self.closing = False
        self.tickets: set[int] = set()
        self.completed: set[int] = set()
        self.logs = {partition: PartitionLog(1) for partition in PARTITIONS}
        for log in self.logs.values():
            log.append(5)
            log.append(3, hole=2)
        self.generation = 0
        self.epoch = 1
        self.committed: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str] = {}
        # What was returned and is not done, by the key of the record's tracker.
        self.undone: dict[tuple[int, int], Record] = {}
        self.batch: list[Record] = []
        self.announced: set[TopicPartition] = set()
        # Offsets that somebody has named as a position, or that records were delivered up to.
        self.reach: dict[TopicPartition, int] = {}
        self.core = ConsumerCore(
            config,
            BOOTSTRAP,
            decode_some_large,
            member_id="made-by-the-client",
            large_from=0 if kind >> 5 & 1 else LARGE_FROM,
        )
        # Whether the next step counts the batch as done.
        self.settles = config.commit_mode != "ack"
        if config.commit_mode == "ack" and kind >> 1 & 1:
            self.settles = bool(kind >> 2 & 1)
            self.core.track(True, next_poll_completes=self.settles)
        if kind >> 3 & 3 == 3:
            self.core.subscribe(self.now, pattern="[a-z]*")
        else:
            self.core.subscribe(self.now, ("orders",) if kind >> 3 & 1 else ("orders", "bills"))

    def begin(self, *, quickly: bool) -> None:
        """Start, and answer as brokers do until there are records, or not."""
        self.core.start(self.now)
        self.take()
        if quickly:
            for _ in range(14):
                self.op_answer()
                self.op_decode()
            self.op_poll()

    def end(self) -> None:
        """Close, and let nobody answer any more: it has to come to an end all the same."""
        self.tickets.add(self.core.close(self.now, graceful=False))
        self.take()
        for _ in range(400):
            if self.core.closed:
                break
            if not self.timers:
                raise CoreBroke("it is not closed, and waits for no timer")
            self.op_timer()
        else:
            raise CoreBroke(f"it is not closed after 400 timers: {sorted(self.timers)}")
        if left := self.tickets - self.completed:
            raise CoreBroke(f"tickets {left} were never answered")

    # --- effects ---------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        self._carry_out(self.core.handle(self.now, event))

    def take(self) -> None:
        self._carry_out(self.core.take_effects())

    def _carry_out(self, effects: list[Effect]) -> None:
        if len(effects) > MOST_EFFECTS:
            kinds = Counter(type(effect).__name__ for effect in effects)
            raise CoreBroke(f"{len(effects)} effects of one event: {kinds}")
        for effect in effects:
            match effect:
                case Send():
                    self.open[effect.request_id] = effect
                    self._check_request(effect.message)
                case DecodeBatch() | Compute():
                    self.decodes.append(effect)
                case SetTimer(key, at, _):
                    if not at - self.now < 1e6:
                        raise CoreBroke(f"timer {key} in {at - self.now} s")
                    self.timers[key] = at
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case ProbeBroker():
                    self.probes.append(effect)
                case BackgroundHeartbeat():
                    self.standby = effect
                case CompleteRequest(ticket):
                    if ticket in self.completed:
                        raise CoreBroke(f"ticket {ticket} is answered twice")
                    self.completed.add(ticket)
                case Emit(fields=fields):
                    if len(repr(fields)) > 20_000:
                        raise CoreBroke(f"a log line of {len(repr(fields))} characters")
                case _:
                    pass

    def _check_request(self, request: Request) -> None:
        if isinstance(request, OffsetCommitRequest):
            for entry in request.entries:
                self._check_commit(entry.partition, entry.offset, entry.metadata)
        elif isinstance(request, FetchRequest):
            for wanted in request.partitions:
                if wanted.offset < 0:
                    raise CoreBroke(f"a fetch from {wanted.offset}")

    def _check_commit(self, partition: TopicPartition, offset: int, metadata: str) -> None:
        self.counts["commits"] += 1
        if not 0 <= offset <= self.reach.get(partition, 0):
            reach = self.reach.get(partition, 0)
            raise CoreBroke(f"commits {partition} up to {offset}, which has come to {reach}")
        found = decode_map(offset, metadata) if metadata else None
        runs = () if found is None else found.runs
        for record in self.undone.values():
            if record.topic_partition != partition or not self.core.owns(record):
                continue
            if record.offset < offset or any(a <= record.offset < b for a, b in runs):
                raise CoreBroke(f"commits {offset} {runs}, and {record.offset} is not done")

    def _reaches(self, partition: TopicPartition, offset: int) -> None:
        self.reach[partition] = max(self.reach.get(partition, 0), offset)

    # --- operations ------------------------------------------------------------------------------

    def operate(self, name: str) -> None:
        """Do one of the operations, a moment later."""
        if self.closing and name in NOT_WHEN_CLOSING:
            return
        self.now += 0.001
        self.counts[name] += 1
        OPERATIONS[name](self)
        self.take()

    def op_answer(self) -> None:
        if self.open:
            send = self._some_request()
            self._reply(send, self._answer(send.message))

    def op_damage(self) -> None:
        if self.open:
            send = self._some_request()
            answer = self._answer(send.message)
            for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
                answer = damage(self.draw, answer)
            self._reply(send, answer)

    def op_fail(self) -> None:
        if self.open:
            send = self._some_request()
            del self.open[send.request_id]
            kinds = list(FailureKind) if self.draw.random() < 0.1 else list(FailureKind)[:5]
            self.handle(Failed(send.request_id, self.draw.choice(kinds), "gone"))

    def op_wrong(self) -> None:
        """An answer to another request than that which was sent."""
        if self.open:
            send, other = self._some_request(), self._some_request()
            self._reply(send, self._answer(other.message))

    def op_late(self) -> None:
        """An answer to a request that was answered before."""
        if self.past:
            send = self.draw.choice(self.past)
            self.handle(Replied(send.request_id, damage(self.draw, self._answer(send.message))))

    def op_unasked(self) -> None:
        """Answers to requests that nobody has made."""
        self.handle(Replied(self.draw.choice(NUMBERS), HeartbeatResponse(error=ErrorCode.none)))
        self.handle(TimerFired(self.draw.choice(TEXTS)))
        self.handle(Failed(self.draw.choice(NUMBERS), FailureKind.TIMEOUT))

    def op_twice(self) -> None:
        """The same answer twice."""
        if self.open:
            send = self._some_request()
            answer = self._answer(send.message)
            self._reply(send, answer)
            self.handle(Replied(send.request_id, answer))

    def op_decode(self) -> None:
        if self.decodes:
            self.handle(self.decodes.pop(self.draw.randrange(len(self.decodes))).run())

    def op_timer(self) -> None:
        """The next timers go off."""
        if not self.timers:
            return
        self.now = max(self.now, min(self.timers.values()))
        for _ in range(MOST_TIMERS_AT_ONCE):
            due = [key for key, at in self.timers.items() if at <= self.now]
            if not due:
                return
            key = self.draw.choice(due)
            del self.timers[key]
            self.handle(TimerFired(key))
        raise CoreBroke(f"timers without end at one moment: {sorted(self.timers)}")

    def op_leap(self) -> None:
        """The machine was suspended."""
        self.now += self.draw.choice((1.0, 30.0, 60.0, 400.0, 1e5))

    def op_silent(self) -> None:
        if self.open:
            self.handle(ConnectionSilent(self._some_request().node, self.now - 5.0))

    def op_probed(self) -> None:
        if self.probes:
            probe = self.probes.pop()
            self.handle(BrokerProbed(probe.node, self.now - 1.0, self.draw.random() < 0.5))

    def op_stand_in(self) -> None:
        standby = self.standby
        if standby is None or standby.message is None:
            return
        answer = self._answer(standby.message)
        if self.draw.random() < 0.5:
            answer = damage(self.draw, answer)
        standby.next_message(answer)
        number = standby.heartbeat_id - (self.draw.random() < 0.2)
        self.handle(BackgroundHeartbeatReply(number, self.now - self.draw.random() * 50, answer))

    def op_produce(self) -> None:
        self.logs[self.draw.choice(PARTITIONS)].append(
            self.draw.randrange(4), self.draw.randrange(2)
        )

    # --- the user --------------------------------------------------------------------------------

    def op_poll(self) -> None:
        core = self.core
        if self.settles:
            self._done(self.batch)
        self.batch = []
        try:
            result = core.poll(
                self.now,
                self.draw.choice((None, 1, 3)),
                expired=self.draw.random() < 0.8,
                records_first=self.draw.random() < 0.2,
            )
        except AsyncRevokeError as error:
            self.counts[f"raised {type(error).__name__}"] += 1
            return
        if result is None:
            return
        self.announced |= result.to_be_revoked
        for record in result.records:
            self.counts["records"] += 1
            self._reaches(record.topic_partition, record.offset + 1)
            self.undone[record.tracker_id, record.offset] = record
            self.batch.append(record)
        # Delivered anew from another position: what was delivered before does not count any more.
        newest = {record.topic_partition: record.tracker_id for record in result.records}
        self.undone = {
            key: record
            for key, record in self.undone.items()
            if key[0] >= newest.get(record.topic_partition, 0)
        }
        if self.config.commit_mode == "manual":
            self._done(self.batch)

    def _done(self, records: list[Record]) -> None:
        for record in records:
            self.undone.pop((record.tracker_id, record.offset), None)

    def op_complete(self) -> None:
        if self.undone and self.config.commit_mode == "ack":
            for _ in range(self.draw.choice((1, 1, 5))):
                if not self.undone:
                    return
                record = self.draw.choice(list(self.undone.values()))
                self._done([record])
                self.core.complete(self.now, record)

    def op_abandon(self) -> None:
        if self.undone and self.config.commit_mode == "ack":
            self.core.abandon(self.now, self.draw.choice(list(self.undone.values())))

    def op_drop(self) -> None:
        if self.undone and self.config.commit_mode == "ack":
            record = self.draw.choice(list(self.undone.values()))
            self.core.drop_after(self.now, record.topic_partition, record.offset)

    def op_commit(self) -> None:
        self.tickets.add(self.core.commit(self.now))

    def op_lookup(self) -> None:
        wanted = self.draw.sample(PARTITIONS, 2)
        which = self.draw.randrange(3)
        if which == 0:
            self.tickets.add(self.core.committed(self.now, wanted))
        elif which == 1:
            self.tickets.add(self.core.offsets_for_times(self.now, dict.fromkeys(wanted, -2)))
        else:
            self.tickets.add(self.core.partitions_for_topic(self.now, self.draw.choice(TEXTS)))

    def _own(self) -> list[TopicPartition]:
        return sorted(self.core.assignment())

    def op_seek(self) -> None:
        if mine := self._own():
            partition = self.draw.choice(mine)
            offset = self.draw.choice((0, 3, 5, 9, 1000))
            try:
                if self.draw.random() < 0.3:
                    self.tickets.add(self.core.seek_to(self.now, [partition], -1))
                else:
                    self.core.seek(self.now, partition, offset)
            except AsyncRevokeError:
                return
            self._reaches(partition, offset)
            # Whoever seeks over them says that they need not be handled.
            self.undone = {k: r for k, r in self.undone.items() if r.topic_partition != partition}

    def op_pause(self) -> None:
        if mine := self._own():
            self.core.pause([self.draw.choice(mine)])

    def op_resume(self) -> None:
        self.core.resume(self.now, self._own())

    def op_subscribe(self) -> None:
        if self.draw.random() < 0.8:
            names = [*TOPICS, "missing"]
            self.core.subscribe(self.now, self.draw.sample(names, self.draw.randrange(1, 4)))
        else:
            self.core.assign(self.now, self.draw.sample(PARTITIONS, 2))

    def op_unsubscribe(self) -> None:
        self.tickets.add(self.core.unsubscribe(self.now))

    def op_delay(self) -> None:
        self.core.delay_revoke([tp for tp in self._own() if tp in self.announced])

    def op_stop(self) -> None:
        self.core.stop(self.now)

    def op_close(self) -> None:
        if self.draw.random() < 0.3:
            self.closing = True
            self.tickets.add(self.core.close(self.now, graceful=self.draw.random() < 0.7))

    # --- answers ---------------------------------------------------------------------------------

    def _some_request(self) -> Send:
        return self.draw.choice(list(self.open.values()))

    def _reply(self, send: Send, answer: Response) -> None:
        self.open.pop(send.request_id, None)
        self.past.append(send)
        self._note_positions(answer)
        self.handle(Replied(send.request_id, answer))

    def _note_positions(self, answer: Response) -> None:
        """What an answer names as a position may be committed."""
        match answer:
            case OffsetFetchResponse(offsets=found):
                for each in found:
                    self._reaches(each.partition, each.offset)
            case ListOffsetsResponse(offsets=listed):
                for offset in listed:
                    self._reaches(offset.partition, offset.offset)
            case OffsetsForLeaderEpochResponse(ends=ends):
                for end in ends:
                    self._reaches(end.partition, end.offset)
            case FetchResponse(partitions=fetched):
                for part in fetched:
                    log = self.logs.get(part.partition)
                    self._reaches(part.partition, 0 if log is None else log.end)
                    # The batches' own headers: in the simulation no CRC protects them.
                    for base, end, _count, _epoch in _HEADERS.iter_unpack(_whole(part.records)):
                        self._reaches(part.partition, max(base, end))
                    if part.error is ErrorCode.offset_out_of_range:
                        self._reaches(part.partition, part.log_start_offset)
            case _:
                pass

    def _error(self, *others: ErrorCode) -> ErrorCode:
        return self.draw.choice((*(ErrorCode.none,) * 8, *others))

    def _answer(self, request: Request) -> Response:
        """What a broker might say."""
        return ANSWERS[type(request)](self, request)

    def metadata_answer(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted(TOPICS) if request.topics is None else request.topics
        leader = self.draw.choice((1, 1, 1, 2))
        return MetadataResponse(
            brokers=tuple(
                BrokerMetadata(node_id=n, host=f"b{n}", port=9092, rack=None) for n in (1, 2)
            ),
            topics=tuple(
                TopicMetadata(
                    error=ErrorCode.none
                    if name in TOPICS
                    else ErrorCode.unknown_topic_or_partition,
                    name=name,
                    topic_id=IDS.get(name, bytes(16)),
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none,
                            partition=number,
                            leader_id=leader,
                            leader_epoch=0,
                            replicas=(1, 2),
                        )
                        for number in range(TOPICS.get(name, 0))
                    ),
                )
                for name in names
            ),
        )

    def coordinator_answer(self, _request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        number = self.draw.choice((1, 1, 1, 2))
        return FindCoordinatorResponse(
            error=self._error(ErrorCode.coordinator_not_available),
            node_id=number,
            host=f"b{number}",
            port=9092,
        )

    def join_answer(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id and request.group_instance_id is None and self.draw.random() < 0.8:
            return JoinGroupResponse(error=ErrorCode.member_id_required, member_id="m-1")
        member_id = request.member_id or "m-1"
        self.generation += self.draw.choice((1, 1, 1, 0, 2))
        us = JoinGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            metadata=request.protocols[0][1],
        )
        other = JoinGroupMember(
            member_id="m-2",
            group_instance_id=None,
            metadata=encode_subscription(
                Subscription(
                    topics=("orders", "bills"),
                    owned=tuple(self.draw.sample(PARTITIONS, self.draw.randrange(3))),
                    generation=self.generation - self.draw.randrange(3),
                )
            ),
        )
        leads = self.draw.random() < 0.4
        return JoinGroupResponse(
            error=self._error(
                ErrorCode.unknown_member_id,
                ErrorCode.not_coordinator,
                ErrorCode.rebalance_in_progress,
            ),
            generation=self.generation,
            protocol_name=request.protocols[0][0],
            leader=member_id if leads else self.draw.choice(("m-2", "m-2", "")),
            member_id=member_id,
            members=(us, other) if leads else (),
        )

    def sync_answer(self, _request: SyncGroupRequest) -> SyncGroupResponse:
        mine = [tp for tp in PARTITIONS if self.draw.random() < 0.7]
        note = self.draw.choice(
            (b"", encode_assignment_user_data(AssignmentUserData(True, 7, True)))
        )
        return SyncGroupResponse(
            error=self._error(
                ErrorCode.rebalance_in_progress,
                ErrorCode.illegal_generation,
                ErrorCode.unknown_member_id,
            ),
            assignment=encode_assignment(mine, note),
        )

    def heartbeat_answer(self, _request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(
            error=self._error(
                ErrorCode.rebalance_in_progress,
                ErrorCode.rebalance_in_progress,
                ErrorCode.illegal_generation,
                ErrorCode.unknown_member_id,
            )
        )

    def leave_answer(self, _request: LeaveGroupRequest) -> LeaveGroupResponse:
        return LeaveGroupResponse(error=self._error(ErrorCode.unknown_member_id))

    def epoch_answer(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(
                error=ErrorCode.none, member_epoch=request.member_epoch
            )
        assignment = None
        if request.member_epoch == 0 or self.draw.random() < 0.4:
            self.epoch += 1
            assignment = tuple(
                (IDS[topic], tuple(n for n in range(count) if self.draw.random() < 0.7))
                for topic, count in TOPICS.items()
            )
        return ConsumerGroupHeartbeatResponse(
            error=self._error(ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id),
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval=5.0,
            assignment=assignment,
        )

    def commit_answer(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        error = self._error(ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)
        if error is ErrorCode.none:
            for entry in request.entries:
                self.committed[entry.partition] = entry.offset
                self.metadata[entry.partition] = entry.metadata
        return OffsetCommitResponse(
            errors=tuple((entry.partition, error) for entry in request.entries)
        )

    def offsets_answer(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            error=self._error(ErrorCode.not_coordinator, ErrorCode.unstable_offset_commit),
            offsets=tuple(
                FetchedOffset(
                    partition=partition,
                    error=ErrorCode.none,
                    offset=self.committed.get(partition, -1),
                    metadata=self.metadata.get(partition, ""),
                )
                for partition in request.partitions
            ),
        )

    def listed_answer(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            offsets=tuple(
                ListedOffset(
                    partition=query.partition,
                    error=self._error(ErrorCode.not_leader_or_follower),
                    offset=log.start if query.timestamp == -2 else log.end,
                    leader_epoch=0,
                )
                for query in request.queries
                if (log := self.logs.get(query.partition)) is not None
            )
        )

    def epochs_answer(self, request: OffsetsForLeaderEpochRequest) -> OffsetsForLeaderEpochResponse:
        return OffsetsForLeaderEpochResponse(
            ends=tuple(
                EpochEnd(
                    partition=query.partition,
                    error=ErrorCode.none,
                    epoch=query.epoch,
                    offset=log.end,
                )
                for query in request.queries
                if (log := self.logs.get(query.partition)) is not None
            )
        )

    def fetch_answer(self, request: FetchRequest) -> FetchResponse:
        found: list[FetchedPartition] = []
        for wanted in request.partitions:
            log = self.logs.get(wanted.partition)
            if log is None:
                continue
            inside = log.start <= wanted.offset <= log.end
            found.append(
                FetchedPartition(
                    partition=wanted.partition,
                    error=ErrorCode.none if inside else ErrorCode.offset_out_of_range,
                    high_watermark=log.end,
                    last_stable_offset=log.end,
                    log_start_offset=log.start,
                    records=log.read(wanted.offset, wanted.max_bytes) if inside else b"",
                )
            )
        session = self.draw.choice((0, 0, 7))
        return FetchResponse(error=ErrorCode.none, session_id=session, partitions=tuple(found))


OPERATIONS: dict[str, Callable[[World], None]] = {
    name: getattr(World, "op_" + name.replace(" ", "_")) for name in dict.fromkeys(NAMES)
}
ANSWERS: dict[type, Callable[[World, Any], Response]] = {
    MetadataRequest: World.metadata_answer,
    FindCoordinatorRequest: World.coordinator_answer,
    JoinGroupRequest: World.join_answer,
    SyncGroupRequest: World.sync_answer,
    HeartbeatRequest: World.heartbeat_answer,
    LeaveGroupRequest: World.leave_answer,
    ConsumerGroupHeartbeatRequest: World.epoch_answer,
    OffsetCommitRequest: World.commit_answer,
    OffsetFetchRequest: World.offsets_answer,
    ListOffsetsRequest: World.listed_answer,
    OffsetsForLeaderEpochRequest: World.epochs_answer,
    FetchRequest: World.fetch_answer,
}

# --- damage -------------------------------------------------------------------------------------

_ERRORS = tuple(ErrorCode)


@cache
def optional_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of a message that may be None."""
    return frozenset(
        field.name for field in msgspec.structs.fields(kind) if type(None) in get_args(field.type)
    )


def damage(draw: Random, answer: Any) -> Any:
    """The same answer with one field changed, anywhere in it."""
    kind = cast("type[msgspec.Struct]", type(answer))
    field = draw.choice(msgspec.structs.fields(kind))
    value: object = getattr(answer, field.name)
    if field.name in optional_fields(kind) and draw.random() < 0.3:
        return msgspec.structs.replace(answer, **{field.name: None})
    if field.name == "records":
        return msgspec.structs.replace(answer, records=_damaged_records(draw, value))
    return msgspec.structs.replace(answer, **{field.name: _damaged(draw, value, field.name)})


def _damaged(draw: Random, value: Any, name: str) -> Any:
    match value:
        case ErrorCode():
            return draw.choice(_ERRORS)
        case bool():
            return not value
        case int():
            return draw.choice(NUMBERS if name in WIDE else NARROW)
        case float():
            return draw.choice((-1.0, 0.0, 1e-9, 0.5, 2**31 / 1000))
        case str():
            return draw.choice((*TEXTS, value + "x"))
        case bytes():
            return _damaged_bytes(draw, value)
        case msgspec.Struct():
            return damage(draw, value)
        case TopicPartition():
            numbers = (-1, 0, 1, 2, 2**31 - 1)
            return TopicPartition(draw.choice(("orders", "bills", "", "x")), draw.choice(numbers))
        case (bytes() | TopicPartition(), tuple() | ErrorCode()):
            # A pair of a message: an id and partitions, or a partition and an error.
            first, second = cast("tuple[object, object]", value)
            if draw.random() < 0.5:
                return (_damaged(draw, first, name), second)
            return (first, _damaged(draw, second, name))
        case tuple():
            return _damaged_items(draw, cast("tuple[object, ...]", value), name)
        case _:
            if value is None and name in ("rack", "cluster_id", "protocol_name", "member_id"):
                return draw.choice(TEXTS)
            return value


def _damaged_items(draw: Random, value: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    at = draw.randrange(len(value)) if value else 0
    match draw.randrange(7) if value else 0:
        case 0:
            return ()
        case 1:
            return (*value, value[at])
        case 2:
            return (*value[:at], *value[at + 1 :])
        case 3:
            return value[::-1]
        case _:
            item = _damaged(draw, value[at], name)
            return (*value[:at], item, *value[at + 1 :])


def _damaged_bytes(draw: Random, value: bytes) -> bytes:
    if not value or draw.random() < 0.3:
        return draw.choice((*BLOBS, *IDS.values()))
    at = draw.randrange(len(value))
    return draw.choice(
        (
            value[:at],
            value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :],
            value + b"more",
        )
    )


def _damaged_records(draw: Random, value: object) -> bytes:
    """No batch that a decoder would refuse, or whose offsets go backward: wrong ones of others."""
    if draw.random() < 0.3:
        return cast("bytes", value)[:-1]
    other = PartitionLog(1)
    for _ in range(draw.randrange(1, 4)):
        other.append(draw.randrange(5), draw.randrange(3))
    return other.read(draw.randrange(other.end + 1), 10_000)
