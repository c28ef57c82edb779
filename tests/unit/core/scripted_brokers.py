"""Brokers on paper for a whole core: requests that any broker can handle get responses at once.

Metadata, FindCoordinator, OffsetFetch, ListOffsets and Fetch get responses automatically, unless
their kind is in ``silent``; all other requests stay open. Nothing else happens by itself: the clock
moves by :meth:`ScriptedBrokers.advance`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace
from simulation.brokers.changing_log import ChangingLog

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    CancelTimer,
    CompleteRequest,
    Compute,
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
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionMetadata,
    Request,
    Response,
    TopicMetadata,
)
from asyncrevoke.testing.fake_kafka.topics import decode_simulated

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import BrokerPattern

RequestT = TypeVar("RequestT", bound=Request)

NODE_IDS = (1, 2)


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


class ScriptedBrokers:
    """One core and its cluster. ``eager`` takes the assignor range."""

    def __init__(
        self,
        *topics: str,
        partitions: dict[str, int] | None = None,
        eager: bool = False,
        pattern: str | BrokerPattern | None = None,
        large_from: int = LARGE_FROM,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.now = 1000.0
        if eager:
            options.setdefault("assignors", ("range",))
        self.eager = eager
        options.setdefault("group_id", "billing")
        self.config = ConsumerConfig(**options)
        self.partitions = {"orders": 4} if partitions is None else partitions
        self.topic_ids = {name: name.encode().ljust(16)[:16] for name in self.partitions}
        self.coordinator = 1
        # Where brokers are, and which of them have a partition.
        self.racks: dict[int, str] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        # What is in responses to OffsetFetch; 0 for what is not in it.
        self.committed: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str] = {}
        self.silent: set[type[Request]] = set()
        # Partitions of topics that only a request by topic id gets, and the error of other ids.
        self.by_id_only: dict[str, int] = {}
        self.error_by_id = ErrorCode.unknown_topic_id
        # The response to DescribeGroups; None: there is none.
        self.described: DescribeGroupsResponse | None = DescribeGroupsResponse(error=ErrorCode.none)
        # The error of responses to heartbeats; None: there is no response.
        self.pulse: ErrorCode | None = None
        self.logs: dict[TopicPartition, ChangingLog] = {}
        self.sent: list[Send] = []
        self._sent_at: dict[int, float] = {}
        self.open: dict[int, Send] = {}
        self._parked: dict[int, float] = {}
        self._responses: deque[Event] = deque()
        self.timers: dict[str, float] = {}
        self.woken = 0
        self.transactions_due = 0
        # What may be sent while the event loop is blocked.
        self.background_heartbeat: BackgroundHeartbeat | None = None
        self.dropped: list[DropSilentConnections] = []
        self.probes: list[ProbeBroker] = []
        self.notices: list[Notify] = []
        self.lifespans: list[EnterLifespan | ExitLifespan | LoseLifespan] = []
        self.events: list[Emit] = []
        self.completed: dict[int, CompleteRequest] = {}
        # What is computed elsewhere, until a test hands its result over.
        self.computations: list[Compute] = []
        self.core = Core(
            self.config,
            [Node(-1, "boot", 9092)],
            decode_simulated,
            member_id="client-made",
            large_from=large_from,
        )
        if topics or pattern is None:
            self.core.subscription_state.subscribe(self.now, topics or ("orders",))
        else:
            self.core.subscription_state.subscribe(self.now, pattern=pattern)

    # --- the world -------------------------------------------------------------------------------

    def start(self) -> None:
        self.core.start(self.now)
        self.run_until_idle()

    def run_until_idle(self) -> None:
        """Carry out what the core asked for, and what it asks for then."""
        self._carry_out(self.core.take_effects(self.now))
        while self._responses:
            self._handle(self._responses.popleft())
            self._carry_out(self.core.take_effects(self.now))

    def hear(self, event: Event) -> None:
        """An event of the test's, and what follows from it."""
        self._handle(event)
        self.run_until_idle()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.sent.append(effect)
                    self._sent_at[effect.request_id] = self.now
                    self.open[effect.request_id] = effect
                    self._respond_automatically(effect)
                case WakePoller():
                    self.woken += 1
                case TransactionDue():
                    self.transactions_due += 1
                case Compute():
                    self.computations.append(effect)
                case DecodeBatch():
                    self._responses.append(effect.run())
                case SetTimer(key, at, _):
                    self.timers[key] = max(at, self.now)
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case ResetConnection(node, channel):
                    for send in self.open.values():
                        if send.node == node and send.channel is channel:
                            kind = FailureKind.DISCONNECTED
                            self._responses.append(Failed(send.request_id, kind, "reset"))
                case DropSilentConnections():
                    self.dropped.append(effect)
                case ProbeBroker():
                    self.probes.append(effect)
                case Notify():
                    self.notices.append(effect)
                case EnterLifespan() | ExitLifespan() | LoseLifespan():
                    self.lifespans.append(effect)
                case Emit():
                    self.events.append(effect)
                case BackgroundHeartbeat():
                    self.background_heartbeat = effect
                case StopBackgroundHeartbeat():
                    self.background_heartbeat = None
                case CompleteRequest(call_id):
                    assert call_id not in self.completed, "a call is completed once"
                    self.completed[call_id] = effect

    def _respond_automatically(self, send: Send) -> None:
        if type(send.message) in self.silent:
            return
        response: Response | None = None
        match send.message:
            case MetadataRequest(topic_ids=topic_ids) if topic_ids:
                response = self._metadata_by_id(topic_ids)
            case MetadataRequest(topics=topics):
                response = self._metadata(topics)
            case FindCoordinatorRequest():
                number = self.coordinator
                response = FindCoordinatorResponse(
                    error=ErrorCode.none, node_id=number, host=f"b{number}", port=9092
                )
            case OffsetFetchRequest(partitions=partitions):
                response = OffsetFetchResponse(
                    error=ErrorCode.none,
                    offsets=tuple(
                        FetchedOffset(
                            partition=partition,
                            error=ErrorCode.none,
                            offset=self.committed.get(partition, 0),
                            metadata=self.metadata.get(partition, ""),
                        )
                        for partition in partitions
                    ),
                )
            case ListOffsetsRequest(queries=queries):
                response = ListOffsetsResponse(
                    offsets=tuple(
                        ListedOffset(
                            partition=query.partition,
                            error=ErrorCode.none,
                            offset=log.start if query.timestamp == -2 else log.end,
                        )
                        for query in queries
                        for log in [self._log(query.partition)]
                    )
                )
            case FetchRequest():
                response = self._fetched(send.message)
                if response is None:
                    self._parked[send.request_id] = self.now + send.message.max_wait
            case DescribeGroupsRequest():
                response = self.described
            case HeartbeatRequest():
                if self.pulse is not None:
                    response = HeartbeatResponse(error=self.pulse)
            case _:
                pass
        if response is not None:
            self._responses.append(Replied(send.request_id, response))

    def _metadata(self, topics: tuple[str, ...] | None) -> MetadataResponse:
        names = sorted(self.partitions) if topics is None else topics
        return MetadataResponse(
            brokers=tuple(
                BrokerMetadata(
                    node_id=number, host=f"b{number}", port=9092, rack=self.racks.get(number)
                )
                for number in NODE_IDS
            ),
            topics=tuple(
                TopicMetadata(
                    error=ErrorCode.none,
                    name=name,
                    topic_id=self.topic_ids[name],
                    is_internal=name.startswith("__"),
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none,
                            partition=number,
                            leader_id=1,
                            leader_epoch=0,
                            replicas=self.replicas.get(TopicPartition(name, number), (1,)),
                        )
                        for number in range(self.partitions[name])
                    ),
                )
                if name in self.partitions
                else TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name=name)
                for name in names
            ),
        )

    def _metadata_by_id(self, topic_ids: tuple[bytes, ...]) -> MetadataResponse:
        names = {self.topic_ids[name]: name for name in (*self.partitions, *self.by_id_only)}
        known = tuple(names[topic_id] for topic_id in topic_ids if topic_id in names)
        self.partitions |= self.by_id_only
        described = self._metadata(known)
        for name in self.by_id_only:
            del self.partitions[name]
        others = tuple(
            TopicMetadata(error=self.error_by_id, name="", topic_id=topic_id)
            for topic_id in topic_ids
            if topic_id not in names
        )
        return replace(described, topics=(*described.topics, *others))

    def _log(self, partition: TopicPartition) -> ChangingLog:
        return self.logs.setdefault(partition, ChangingLog(1))

    def _fetched(self, request: FetchRequest, *, expired: bool = False) -> FetchResponse | None:
        found = tuple(self._read(wanted, request.topic_ids) for wanted in request.partitions)
        unknown = ErrorCode.unknown_topic_id
        if expired or any(part.records or part.error is unknown for part in found):
            return FetchResponse(error=ErrorCode.none, partitions=found)
        return None

    def _read(self, wanted: FetchPartition, ids: dict[str, bytes] | None) -> FetchedPartition:
        partition = wanted.partition
        if ids is not None and ids[partition.topic] != self.topic_ids[partition.topic]:
            return FetchedPartition(partition=partition, error=ErrorCode.unknown_topic_id)
        log = self._log(partition)
        if not log.start <= wanted.offset <= log.end:
            return FetchedPartition(partition=partition, error=ErrorCode.offset_out_of_range)
        return FetchedPartition(
            partition=partition,
            error=ErrorCode.none,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=log.read(wanted.offset, wanted.max_bytes),
        )

    def _handle(self, event: Event) -> None:
        if isinstance(event, (Replied, Failed)):
            del self.open[event.request_id]
            self._parked.pop(event.request_id, None)
        self._carry_out(self.core.handle(self.now, event))

    def advance(self, seconds: float) -> None:
        """Move the clock; timers fire, and fetches that wait come back empty, on the way."""
        self.run_until_idle()
        until = self.now + seconds
        while True:
            due = [(at, 0, key) for key, at in self.timers.items()]
            due += [(at, request, "") for request, at in self._parked.items()]
            at, request, key = min(due, default=(until + 1, 0, ""))
            if at > until:
                break
            self.now = max(self.now, at)
            if request:
                message = self.open[request].message
                assert isinstance(message, FetchRequest)
                response = self._fetched(message, expired=True)
                assert response is not None
                self._handle(Replied(request, response))
            else:
                self.fire(key)
            self.run_until_idle()
        self.now = until

    def fire(self, timer: str) -> None:
        """This timer fires, before others that are due."""
        del self.timers[timer]
        self._handle(TimerFired(timer))

    def produce(self, number: int, count: int = 1, topic: str = "orders") -> None:
        """Append records, and respond to the fetches that wait for them."""
        self._log(tp(number, topic)).append(count)
        self._respond_to_parked_fetches()

    def end_transaction(self, number: int, topic: str = "orders") -> None:
        """Append a control batch, and respond to the fetches that wait for it."""
        self._log(tp(number, topic)).append(0, hole=1)
        self._respond_to_parked_fetches()

    def _respond_to_parked_fetches(self) -> None:
        for request_id in list(self._parked):
            message = self.open[request_id].message
            assert isinstance(message, FetchRequest)
            response = self._fetched(message)
            if response is not None:
                self._handle(Replied(request_id, response))
        self.run_until_idle()

    # --- open requests ---------------------------------------------------------------------------

    def sends(self, kind: type[RequestT]) -> list[Send]:
        """The open requests of this kind, oldest first."""
        self.run_until_idle()
        return [send for send in self.open.values() if isinstance(send.message, kind)]

    def only(self, kind: type[RequestT]) -> tuple[Send, RequestT]:
        """The one open request of this kind."""
        sends = self.sends(kind)
        assert len(sends) == 1, (kind.__name__, sends)
        message = sends[0].message
        assert isinstance(message, kind)
        return sends[0], message

    def count(self, kind: type[Request]) -> int:
        """How many requests of this kind were ever sent."""
        self.run_until_idle()
        return sum(isinstance(send.message, kind) for send in self.sent)

    def sent_at(self, kind: type[Request]) -> float:
        """When the last request of this kind was sent."""
        return max(
            self._sent_at[send.request_id] for send in self.sent if isinstance(send.message, kind)
        )

    def reply(self, send: Send, message: Response) -> None:
        self._handle(Replied(send.request_id, message))
        self.run_until_idle()

    def fail(
        self, send: Send, kind: FailureKind = FailureKind.DISCONNECTED, detail: str = "gone"
    ) -> None:
        self._handle(Failed(send.request_id, kind, detail))
        self.run_until_idle()
