"""A core that does as it is told, and sockets that respond as they are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    Channel,
    CompleteRequest,
    ConnectionReport,
    DropSilentConnections,
    Effect,
    Emit,
    Event,
    Failed,
    FailureKind,
    Node,
    Notify,
    NotifyKind,
    ProbeBroker,
    Replied,
    Send,
    WakePoller,
)
from asyncrevoke.client.model import (
    GroupMetadata,
    OffsetAndMetadata,
    PollResult,
    Record,
    TopicPartition,
)
from asyncrevoke.client.protocol.messages import MetadataRequest, MetadataResponse
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvents
from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls
from asyncrevoke.client.runtime.hooks.transactions import TransactionHook
from asyncrevoke.client.runtime.loop.driver import Driver
from asyncrevoke.client.runtime.session.parts import SessionHooks, SessionParts
from asyncrevoke.client.runtime.session.reactions import SessionReactions
from asyncrevoke.client.runtime.session.record_iterator import ReadReports
from asyncrevoke.client.runtime.session.record_owners import RecordOwners
from asyncrevoke.client.runtime.session.session import Session
from asyncrevoke.client.runtime.session.status import SessionStatus
from asyncrevoke.consumer import Consumer, RebalanceListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.model import BlockingRecord
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder

ORDERS = TopicPartition("orders", 0)
NODE = Node(-1, "localhost", 9092)


def record(offset: int, partition: TopicPartition = ORDERS) -> Record:
    return Record(partition.topic, partition.partition, offset, 0, 0, None, b"value")


def result(*offsets: int, lost: Iterable[TopicPartition] = ()) -> PollResult:
    records = [record(offset) for offset in offsets]
    return PollResult({ORDERS: records} if records else {}, lost=frozenset(lost))


def send(request_id: int = 1) -> Send:
    return Send(request_id, MetadataRequest(topics=()), NODE, Channel.METADATA, 1.0)


class ScriptedCore:
    """Returns what the test puts into ``results``, and writes down what it is asked."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.events: list[Event] = []
        self.calls: list[tuple[str, object]] = []
        self.gone: set[int] = set()
        self.results: list[PollResult | Exception] = []
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_close: Callable[[int, bool], None] = self.close_at_once
        self.counted = 0  # batches that the start of a step has counted
        self.in_flight = 0
        self.stopping = False
        self.ended = False
        self.closed = False
        self.held: list[Record] = []
        self.deadline: Deadline | None = None  # of the last close
        self.positions: dict[TopicPartition, int] = {}
        self.tracking = "by batch"
        self.reader: RecordReader | None = None
        self.owes_plan = False
        self.plans = 0
        self._polling = False
        self._out = False
        self._calls = 0
        # The parts of the core that the session calls.
        self.assignment = self.returned_records = self.fetcher = self.collector = self
        self.revocation = self.seeking = self.poller = self.leaving = self
        self.subscription_state = self.session_guard = self.output_topics = self

    # -- as the driver wants it

    def start(self, now: float) -> None:
        self.calls.append(("start", now))

    def handle(self, now: float, event: Event) -> list[Effect]:
        self.events.append(event)
        self.on_event(event)
        return self.take_effects(now)

    def take_effects(self, _now: float) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    @property
    def has_effects(self) -> bool:
        return bool(self.effects)

    # -- as the session wants it

    def deliver_unreadable(self) -> None:
        self.calls.append(("deliver_unreadable", None))

    def poll_for_handlers(self) -> None:
        self.calls.append(("poll_for_handlers", None))

    def plan_owed(self, _now: float) -> None:
        self.owes_plan = False
        self.plans += 1

    def poll(
        self,
        now: float,
        max_records: int | None = None,
        *,
        expired: bool = False,
        records_first: bool = False,
        until_moved: bool = False,
        reader: RecordReader | None = None,
        large: LargePoll | None = None,
    ) -> PollResult | None:
        if not self._polling:
            self._polling = True
            self.counted += self._out
            self._out = False
            self.ended = self.ended or self.stopping
        if self.ended:
            return None
        if self.results:
            following = self.results.pop(0)
            self._polling = False
            if isinstance(following, Exception):
                raise following
            self._out = True
            self.reader = reader
            if reader is not None:
                reader.begin(following.records)
            return following
        if expired:
            self._polling = False
            return PollResult({})
        return None

    def stop(self, now: float) -> None:
        self.stopping = True
        self.ended = self.ended or self._polling
        self.effects.append(WakePoller())

    def close(self, now: float, *, graceful: bool = True, deadline: Deadline | None = None) -> int:
        self.calls.append(("close", graceful))
        self.deadline = deadline
        self.ended = True
        self.effects.append(WakePoller())
        call_id = self._call_id()
        self.on_close(call_id, graceful)
        return call_id

    def close_at_once(self, call_id: int, _graceful: bool) -> None:
        self.closed = True
        self.effects.append(CompleteRequest(call_id))

    def blocking_records(self, now: float) -> list[BlockingRecord]:
        return []

    def boundary(self, now: float, *, inside: bool) -> None:
        self.calls.append(("boundary", inside))

    def track(self, *, one_by_one: bool, next_poll_completes: bool = False) -> None:
        self.tracking = (
            "by batch"
            if not one_by_one
            else "until done"
            if next_poll_completes
            else "until completed"
        )

    def may_begin_until(self, _now: float) -> float:
        return float("inf")

    def await_confirmation(self, now: float) -> int:
        return self._completed("confirmation", now)

    def submit(self, record: Record) -> bool:
        self.held.append(record)
        return True

    def complete(self, now: float, record: Record) -> bool:
        self.calls.append(("complete", record.offset))
        return True

    def complete_all(self, now: float, records: Sequence[Record]) -> None:
        for record in records:
            self.complete(now, record)

    def abandon_all(self, now: float, records: Sequence[Record]) -> None:
        for record in records:
            self.calls.append(("abandon", record.offset))

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        return 0

    def interrupt(self, now: float) -> None:
        self.calls.append(("interrupt", None))

    def owns(self, record: Record) -> bool:
        return record.offset not in self.gone

    def drop_after(self, now: float, partition: TopicPartition, offset: int) -> None:
        self.calls.append(("drop_after", (partition, offset)))

    def delay(self, partitions: Iterable[TopicPartition]) -> bool:
        self.calls.append(("delay_revoke", list(partitions)))
        return True

    def set_topics(self, topics: Iterable[str]) -> None:
        """No call of the application's."""

    def subscribe(self, now: float, topics: Iterable[str] = (), pattern: str | None = None) -> None:
        self.calls.append(("subscribe", (tuple(topics), pattern)))

    def unsubscribe(self, now: float) -> int:
        return self._completed("unsubscribe", None)

    def assign(self, now: float, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("assign", list(partitions)))

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset({ORDERS})

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions[partition]

    def commit(
        self, now: float, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> int:
        return self._completed("commit", offsets)

    def offsets_for_times(self, now: float, timestamps: Mapping[TopicPartition, int]) -> int:
        self.calls.append(("offsets_for_times", dict(timestamps)))
        return self._call_id()

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("billing")

    def _completed(self, call: str, argument: object) -> int:
        self.calls.append((call, argument))
        call_id = self._call_id()
        self.effects.append(CompleteRequest(call_id))
        return call_id

    def _call_id(self) -> int:
        self._calls += 1
        return self._calls

    def listener_called(self, now: float, instance_ids: Sequence[int]) -> None:
        self.calls.append(("listener_called", tuple(instance_ids)))

    # -- for tests

    def asked(self, call: str) -> list[object]:
        return [argument for name, argument in self.calls if name == call]

    def notify(self, kind: NotifyKind, *partitions: TopicPartition) -> None:
        self.effects.append(Notify(kind, frozenset(partitions)))

    def emit(self, level: str, event: str, **fields: object) -> None:
        self.effects.append(Emit(level, event, fields))


class ScriptedSockets:
    """Responds to each request when ``open``; an exception in ``error`` is raised instead."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.error: BaseException | None = None
        self.unreachable = False
        self.sent: list[Send] = []
        self.on_request: Callable[[Send], object] = lambda _send: None
        self.cancelled = 0
        self.resets: list[tuple[Node, Channel]] = []
        self.dropped: list[DropSilentConnections] = []
        self.reports: asyncio.Queue[ConnectionReport] = asyncio.Queue()
        self.closed = False

    def reset(self, node: Node, channel: Channel) -> None:
        self.resets.append((node, channel))

    async def report(self) -> ConnectionReport:
        return await self.reports.get()

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        return BrokerProbed(probe.node, 0.0, reachable=not self.unreachable)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        self.dropped.append(drop)

    def begin(self, _send: Send, _then: object) -> bool:
        return False

    async def request(self, send: Send) -> Replied | Failed:
        self.sent.append(send)
        self.on_request(send)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        if self.unreachable:
            return Failed(send.request_id, FailureKind.UNREACHABLE, "nobody there")
        return Replied(send.request_id, MetadataResponse(brokers=(), topics=()))

    async def close(self) -> None:
        self.closed = True


def make_parts(
    core: ScriptedCore,
    requests: ScriptedSockets,
    listener: object = None,
    *,
    config: ConsumerConfig | None = None,
    recorder: SessionRecorder | None = None,
    tolerated_lag: float = 15.0,
    jitter: Random | None = None,
) -> SessionParts:
    """A session's parts, around this core and these requests."""
    own_core, owners, transactions = cast("Core", core), RecordOwners(), TransactionHook()
    hooks = SessionHooks(
        log=EventLog(),
        listener=ListenerCalls(listener, 300.0),
        owners=owners,
        status=SessionStatus(own_core, owners, transactions, tuple),
        reads=ReadReports(None),
        lifespans=LifespanEvents(),
        transactions=transactions,
        recorder=recorder,
    )
    driver = Driver(
        own_core,
        requests,
        hooks.log,
        hooks.listener,
        hooks.lifespans,
        SessionReactions(hooks),
        tolerated_lag=tolerated_lag,
        jitter=jitter,
    )
    return SessionParts(
        config=config or ConsumerConfig(),
        core=own_core,
        driver=driver,
        requests=requests,
        bootstrap=(),
        hooks=hooks,
    )


def make_driver(
    core: ScriptedCore, requests: ScriptedSockets, listener: object = None
) -> tuple[Driver, ListenerCalls]:
    parts = make_parts(core, requests, listener)
    return parts.driver, parts.hooks.listener


class ScriptedConsumer(Consumer):
    """A consumer on a scripted core."""

    core: ScriptedCore
    requests: ScriptedSockets
    session: Session
    recorder: SessionRecorder | None = None

    @override
    def _open(self) -> Session:
        self.core = ScriptedCore()
        self.requests = ScriptedSockets()
        self.session = Session(
            make_parts(
                self.core,
                self.requests,
                self._listener,
                config=self.config,
                recorder=self.recorder,
            ),
            cast("Core", self.core),
        )
        return self.session

    def deliver(self, *results: PollResult | Exception) -> None:
        """Let the next steps return these."""
        self.core.results.extend(results)
        self.tell(WakePoller())

    def tell(self, *effects: Effect) -> None:
        """Carry these out as if an event had caused them."""
        self.core.effects.extend(effects)
        self.session.call(lambda _now: None)


def scripted_consumer(
    *topics: str, listener: RebalanceListener | None = None, **options: Unpack[ConsumerOptions]
) -> ScriptedConsumer:
    """A member of the group billing, unless options say otherwise."""
    options.setdefault("group_id", "billing")
    return ScriptedConsumer(*topics, listener=listener, **options)


async def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition()`` holds, at most 5 s."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0)
