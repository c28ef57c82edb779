"""A core with simulated brokers, and checks of what the core must keep."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from simulation.cluster.large_batches import decode_some_large

from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    BrokerProbed,
    CancelTimer,
    CompleteRequest,
    Compute,
    ConnectionSilent,
    DecodeBatch,
    DropSilentConnections,
    Effect,
    Emit,
    EnterLifespan,
    Event,
    ExitLifespan,
    Failed,
    FailureKind,
    LoseLifespan,
    Node,
    Notify,
    ProbeBroker,
    Replied,
    ResetConnection,
    Send,
    SetTimer,
    StopBackgroundHeartbeat,
    TimerFired,
    TransactionDue,
    WakePoller,
)
from asyncrevoke.client.core.io.outbox import LARGE_FROM
from asyncrevoke.client.core.partition.completion_map import decode as decode_map
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    HeartbeatResponse,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochResponse,
    Request,
    Response,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import Record, TopicPartition

from fuzz.core_environment.brokers import FuzzBrokers
from fuzz.core_environment.cluster import PARTITIONS, TOPICS
from fuzz.core_environment.damage import NUMBERS, TEXTS, damage
from fuzz.core_environment.operations import NAMES, NOT_WHEN_CLOSING

BOOTSTRAP = [Node(-1, "boot", 9092)]
# Effects of one call: a rebalance of all partitions, closing and the end of all requests are less.
MOST_EFFECTS = 250
# Timers in a row that are set for no later than now.
MOST_TIMERS_AT_ONCE = 100
# Of a batch in the simulation: base offset, offset after the batch, records, leader epoch.
_HEADERS = struct.Struct(">qqii")


class CoreBroke(Exception):  # noqa: N818 - it names what has happened
    """A promise of the core that does not hold."""


def _whole(records: bytes | memoryview) -> bytes | memoryview:
    """``records`` without what is left of a header at its end."""
    return records[: len(records) // _HEADERS.size * _HEADERS.size]


class CoreEnvironment(FuzzBrokers):
    """A core and everything around it."""

    def __init__(
        self, config: ConsumerConfig, kind: int, draw: Random, counts: Counter[str]
    ) -> None:
        super().__init__(draw)
        self.counts = counts
        self.config = config
        self.now = 1000.0
        self.open: dict[int, Send] = {}
        self.past: list[Send] = []
        # What is done beside the event loop.
        self.decodes: list[DecodeBatch | Compute] = []
        self.timers: dict[str, float] = {}
        self.probes: list[ProbeBroker] = []
        self.background_heartbeat: BackgroundHeartbeat | None = None
        self.closing = False
        self.tickets: set[int] = set()
        self.completed: set[int] = set()
        # What was returned and is not done, by the key of the record's tracker.
        self.undone: dict[tuple[int, int], Record] = {}
        self.batch: list[Record] = []
        self.announced: set[TopicPartition] = set()
        # Offsets that somebody has named as a position, or that records were delivered up to.
        self.reach: dict[TopicPartition, int] = {}
        self.core = Core(
            config,
            BOOTSTRAP,
            decode_some_large,
            member_id="made-by-the-client",
            large_from=0 if kind >> 5 & 1 else LARGE_FROM,
        )
        # Whether the next step counts the batch as done.
        self.next_poll_completes = config.commit_mode != "ack"
        if config.commit_mode == "ack" and kind >> 1 & 1:
            self.next_poll_completes = bool(kind >> 2 & 1)
            self.core.returned_records.track(
                one_by_one=True, next_poll_completes=self.next_poll_completes
            )
        if kind >> 3 & 3 == 3:
            self.core.subscription_state.subscribe(self.now, pattern="[a-z]*")
        else:
            self.core.subscription_state.subscribe(
                self.now, ("orders",) if kind >> 3 & 1 else ("orders", "bills")
            )

    def begin(self, *, quickly: bool) -> None:
        """Start, and respond as brokers do until there are records, or not."""
        self.core.start(self.now)
        self.take()
        if quickly:
            for _ in range(14):
                self.op_respond()
                self.op_decode()
            self.op_poll()

    def end(self) -> None:
        """Close, and let nobody respond any more: it has to come to an end all the same."""
        self.tickets.add(self.core.close(self.now, graceful=False))
        self.take()
        for _ in range(400):
            if self.core.leaving.closed:
                break
            if not self.timers:
                raise CoreBroke("it is not closed, and waits for no timer")
            self.op_timer()
        else:
            raise CoreBroke(f"it is not closed after 400 timers: {sorted(self.timers)}")
        if left := self.tickets - self.completed:
            raise CoreBroke(f"tickets {left} were never completed")

    # --- effects ---------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        self._carry_out(self.core.handle(self.now, event))

    def take(self) -> None:
        self._carry_out(self.core.take_effects(self.now))

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
                    self.background_heartbeat = effect
                case StopBackgroundHeartbeat():
                    self.background_heartbeat = None
                case CompleteRequest(ticket):
                    if ticket in self.completed:
                        raise CoreBroke(f"ticket {ticket} is completed twice")
                    self.completed.add(ticket)
                case Emit(fields=fields):
                    if len(repr(fields)) > 20_000:
                        raise CoreBroke(f"a log line of {len(repr(fields))} characters")
                case Notify() | WakePoller() | ResetConnection() | DropSilentConnections():
                    pass
                case EnterLifespan() | ExitLifespan() | LoseLifespan():
                    raise CoreBroke("no partition has a lifespan here")
                case TransactionDue():
                    raise CoreBroke("offsets are not committed in transactions here")

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

    def op_respond(self) -> None:
        if self.open:
            send = self._some_request()
            self._reply(send, self._response(send.message))

    def op_damage(self) -> None:
        if self.open:
            send = self._some_request()
            response = self._response(send.message)
            for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
                response = damage(self.draw, response)
            self._reply(send, response)

    def op_fail(self) -> None:
        if self.open:
            send = self._some_request()
            del self.open[send.request_id]
            kinds = list(FailureKind) if self.draw.random() < 0.1 else list(FailureKind)[:5]
            self.handle(Failed(send.request_id, self.draw.choice(kinds), "gone"))

    def op_wrong(self) -> None:
        """A response to another request than that which was sent."""
        if self.open:
            send, other = self._some_request(), self._some_request()
            self._reply(send, self._response(other.message))

    def op_late(self) -> None:
        """A response to a request that already got one."""
        if self.past:
            send = self.draw.choice(self.past)
            self.handle(Replied(send.request_id, damage(self.draw, self._response(send.message))))

    def op_unasked(self) -> None:
        """Responses to requests that nobody has made."""
        self.handle(Replied(self.draw.choice(NUMBERS), HeartbeatResponse(error=ErrorCode.none)))
        self.handle(TimerFired(self.draw.choice(TEXTS)))
        self.handle(Failed(self.draw.choice(NUMBERS), FailureKind.TIMEOUT))

    def op_twice(self) -> None:
        """The same response twice."""
        if self.open:
            send = self._some_request()
            response = self._response(send.message)
            self._reply(send, response)
            self.handle(Replied(send.request_id, response))

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

    def op_background_reply(self) -> None:
        background_heartbeat = self.background_heartbeat
        if background_heartbeat is None:
            return
        response = self._response(background_heartbeat.message)
        if self.draw.random() < 0.5:
            response = damage(self.draw, response)
        background_heartbeat.next_message(response)
        number = background_heartbeat.heartbeat_id - (self.draw.random() < 0.2)
        self.handle(BackgroundHeartbeatReply(number, self.now - self.draw.random() * 50, response))

    def op_produce(self) -> None:
        self.logs[self.draw.choice(PARTITIONS)].append(
            self.draw.randrange(4), self.draw.randrange(2)
        )

    # --- the user --------------------------------------------------------------------------------

    def op_poll(self) -> None:
        core = self.core
        if self.next_poll_completes:
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
                self.core.returned_records.complete(self.now, record)

    def op_abandon(self) -> None:
        if self.undone and self.config.commit_mode == "ack":
            self.core.returned_records.abandon_all(
                self.now, [self.draw.choice(list(self.undone.values()))]
            )

    def op_drop(self) -> None:
        if self.undone and self.config.commit_mode == "ack":
            record = self.draw.choice(list(self.undone.values()))
            self.core.returned_records.drop_after(self.now, record.topic_partition, record.offset)

    def op_commit(self) -> None:
        self.tickets.add(self.core.commit(self.now))

    def op_lookup(self) -> None:
        wanted = self.draw.sample(PARTITIONS, 2)
        which = self.draw.randrange(4)
        if which == 0:
            self.tickets.add(self.core.committed(self.now, wanted))
        elif which == 1:
            self.tickets.add(self.core.offsets_for_times(self.now, dict.fromkeys(wanted, -2)))
        elif which == 2:
            self.tickets.add(self.core.partitions_for_topic(self.now, self.draw.choice(TEXTS)))
        else:
            topics = self.draw.choice([None, TEXTS])
            self.tickets.add(self.core.describe_topics(self.now, topics))

    def _own(self) -> list[TopicPartition]:
        return sorted(self.core.assignment.partitions())

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
            self.core.seeking.pause(self.now, [self.draw.choice(mine)])

    def op_resume(self) -> None:
        self.core.seeking.resume(self.now, self._own())

    def op_subscribe(self) -> None:
        if self.draw.random() < 0.8:
            names = [*TOPICS, "missing"]
            self.core.subscription_state.subscribe(
                self.now, self.draw.sample(names, self.draw.randrange(1, 4))
            )
        else:
            self.core.subscription_state.assign(self.now, self.draw.sample(PARTITIONS, 2))

    def op_unsubscribe(self) -> None:
        self.tickets.add(self.core.unsubscribe(self.now))

    def op_delay(self) -> None:
        self.core.revocation.delay([tp for tp in self._own() if tp in self.announced])

    def op_stop(self) -> None:
        self.core.poller.stop(self.now)

    def op_close(self) -> None:
        if self.draw.random() < 0.3:
            self.closing = True
            self.tickets.add(self.core.close(self.now, graceful=self.draw.random() < 0.7))

    # --- responses -------------------------------------------------------------------------------

    def _some_request(self) -> Send:
        return self.draw.choice(list(self.open.values()))

    def _reply(self, send: Send, response: Response) -> None:
        self.open.pop(send.request_id, None)
        self.past.append(send)
        self._note_positions(response)
        self.handle(Replied(send.request_id, response))

    def _note_positions(self, response: Response) -> None:
        """What a response names as a position may be committed."""
        match response:
            case OffsetFetchResponse(offsets=found):
                for candidate in found:
                    self._reaches(candidate.partition, candidate.offset)
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


OPERATIONS: dict[str, Callable[[CoreEnvironment], None]] = {
    name: getattr(CoreEnvironment, "op_" + name.replace(" ", "_")) for name in dict.fromkeys(NAMES)
}
