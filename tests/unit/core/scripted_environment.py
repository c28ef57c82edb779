"""A world for single parts of the core: the test responds to requests and moves the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
from asyncrevoke.client.core.io.effects import (
    CancelTimer,
    Channel,
    CompleteRequest,
    DecodeBatch,
    DropSilentConnections,
    Emit,
    Failed,
    FailureKind,
    Node,
    ProbeBroker,
    Replied,
    ResetConnection,
    Send,
    SetTimer,
    TimerFired,
    WakePoller,
)
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
from asyncrevoke.client.core.metadata.coordinator import Coordinator
from asyncrevoke.client.core.metadata.missing_topics import OutputTopics
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    Request,
    Response,
    TopicMetadata,
)

if TYPE_CHECKING:
    from typing import Unpack

RequestT = TypeVar("RequestT", bound=Request)

BOOTSTRAP = (Node(-1, "boot1", 9092), Node(-2, "boot2", 9092))
BROKERS = tuple(
    BrokerMetadata(node_id=number, host=f"b{number}", port=9092) for number in (1, 2, 3)
)
NODES = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in BROKERS}


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def topic(
    name: str,
    leaders: dict[int, int],
    *,
    epoch: int = 0,
    topic_id: bytes = bytes(16),
    error: ErrorCode = ErrorCode.none,
    is_internal: bool = False,
) -> TopicMetadata:
    return TopicMetadata(
        error=error,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=tuple(
            PartitionMetadata(
                error=ErrorCode.none, partition=number, leader_id=leader, leader_epoch=epoch
            )
            for number, leader in leaders.items()
        ),
    )


def metadata(*topics: TopicMetadata) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, topics=topics)


class ScriptedRequests:
    """Carries out effects on paper. ``now`` moves only by :meth:`advance`."""

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        self.now = 100.0
        self.outbox = Outbox()
        options.setdefault("group_id", "g")
        self.config = ConsumerConfig(**options)
        self.output_topics = OutputTopics(self.outbox, BOOTSTRAP[0])
        self.cluster = ClusterMetadata(
            self.outbox, self.config, BOOTSTRAP, self.output_topics, self
        )
        self.coordinator = Coordinator(self.outbox, self.config, self.cluster, self)
        self.open: dict[int, Send] = {}
        self.timers: dict[str, float] = {}
        self.events: list[Emit] = []
        self.completed: dict[int, CompleteRequest] = {}
        self.woken = 0
        # Large batches are decoded at once, or when a test says so.
        self.decodes: list[DecodeBatch] | None = None
        self.errors: list[Exception] = []
        self.resets: list[tuple[Node, Channel]] = []
        self.probes: list[ProbeBroker] = []
        self.dropped: list[DropSilentConnections] = []

    def failed(self, now: float, error: Exception) -> None:
        self.errors.append(error)

    def topics_changed(self, now: float) -> None:
        pass

    def metadata_refreshed(self, now: float) -> None:
        pass

    def sync(self) -> None:
        """Carry out what was asked so far."""
        for effect in self.outbox.take():
            match effect:
                case Send():
                    self.open[effect.request_id] = effect
                case SetTimer(key, at, _):
                    assert at >= self.now
                    self.timers[key] = at
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case Emit():
                    self.events.append(effect)
                case CompleteRequest(call_id):
                    assert call_id not in self.completed, "completed twice"
                    self.completed[call_id] = effect
                case WakePoller():
                    self.woken += 1
                case DecodeBatch() if self.decodes is not None:
                    self.decodes.append(effect)
                case DecodeBatch():
                    self.outbox.route(self.now, effect.run())
                case ResetConnection(node, channel):
                    self.resets.append((node, channel))
                case ProbeBroker():
                    self.probes.append(effect)
                case DropSilentConnections():
                    self.dropped.append(effect)
                case _:
                    raise AssertionError(effect)

    def sends(self, kind: type[RequestT]) -> list[Send]:
        """The open requests of this kind, oldest first."""
        self.sync()
        return [send for send in self.open.values() if isinstance(send.message, kind)]

    def only(self, kind: type[RequestT]) -> tuple[Send, RequestT]:
        """The one open request of this kind."""
        sends = self.sends(kind)
        assert len(sends) == 1, sends
        message = sends[0].message
        assert isinstance(message, kind)
        return sends[0], message

    def reply(self, send: Send, message: Response) -> None:
        del self.open[send.request_id]
        self.outbox.route(self.now, Replied(send.request_id, message))
        self.sync()

    def fail(
        self, send: Send, kind: FailureKind = FailureKind.DISCONNECTED, detail: str = "gone"
    ) -> None:
        del self.open[send.request_id]
        self.outbox.route(self.now, Failed(send.request_id, kind, detail))
        self.sync()

    def advance(self, seconds: float) -> None:
        """Move the clock, and fire what is due on the way."""
        self.sync()
        until = self.now + seconds
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now = max(self.now, at)
            del self.timers[key]
            self.outbox.route(self.now, TimerFired(key))
            self.sync()
        self.now = until

    def named(self, event: str) -> list[Emit]:
        """The events of this name."""
        self.sync()
        return [emit for emit in self.events if emit.event == event]

    def respond_to_metadata(self, *topics: TopicMetadata) -> MetadataRequest:
        """Respond to the open metadata request."""
        send, request = self.only(MetadataRequest)
        self.reply(send, metadata(*topics))
        return request

    def know(self, *topics: TopicMetadata) -> None:
        """Let the cluster know these topics."""
        self.cluster.start(self.now)
        self.sync()
        self.respond_to_metadata()
        if topics:
            self.cluster.want(self.now, frozenset(t.name for t in topics))
            self.respond_to_metadata(*topics)
