"""Connections between members and brokers, with what can go wrong on them.

A broker handles one request at a time per connection: what arrives behind a pending JoinGroup waits
for it. A connection that breaks fails everything outstanding on it; whether a request that was
already sent is still processed is drawn, and it may then be processed after a later one that took a
new connection. A request ends exactly once, by a response or by a failure.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    Channel,
    ConnectionSilent,
    DropSilentConnections,
    Event,
    Failed,
    FailureKind,
    Node,
    ProbeBroker,
    Replied,
    Send,
)
from asyncrevoke.client.core.io.link_silence import RoundTripTime, may_hold
from asyncrevoke.client.protocol.messages import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply

_CONNECT = 0.002
_REJECTED = 0.01
_LONGEST_GHOST = 0.4


def _kind(message: Request) -> tuple[type[Request], bool]:
    """Metadata of topics by their ids are another request than those of wanted topics."""
    return type(message), isinstance(message, MetadataRequest) and bool(message.topic_ids)


class RequestFate(enum.Enum):
    """What happens to one request, if there is no response as usual."""

    LOST_BEFORE = "the connection breaks before the broker has read it"
    LOST_AFTER = "it is processed, and the connection breaks before the response is there"
    LATE = "the connection breaks at once, and it is processed later"


class BrokerService(Protocol):
    """The brokers, as connections see them."""

    def resolve(self, node: Node) -> int | None:
        """Which broker has this address."""
        ...

    def is_up(self, broker: int) -> bool:
        """Whether it accepts connections."""
        ...

    def stalled_until(self, broker: int) -> float:
        """The time at which a paused broker goes on, 0 if it is not paused."""
        ...

    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process a request; ``reply`` is called once, or never if the broker dies."""
        ...


class Endpoint(Protocol):
    """A sender of requests."""

    client: int
    # Whether it has connections of its own beside those of the same client's event loop.
    beside: bool

    def receive(self, event: Event) -> None:
        """The response to a request."""
        ...


# Client, broker, channel, and whether it is the client's heartbeat thread.
_Key: TypeAlias = tuple[int, int, Channel, bool]


class Connection:
    __slots__ = (
        "alive",
        "black_hole",
        "busy",
        "ghost_delay",
        "heard_at",
        "key",
        "last_arrival",
        "last_response",
        "link",
        "outstanding",
        "told_since",
        "waiting",
    )

    def __init__(self, key: _Key, opened_at: float, opening: float) -> None:
        self.key = key
        self.alive = True
        # Nothing arrives at either side, and neither gets an error.
        self.black_hole = False
        self.heard_at = opened_at
        self.told_since = -1.0
        self.link = RoundTripTime(opening)
        # How much later than its bytes a broker reads what a dead connection still holds.
        self.ghost_delay = 0.0
        self.busy = False
        self.last_arrival = 0.0
        self.last_response = 0.0
        self.outstanding: dict[int, PendingRequest] = {}
        self.waiting: deque[PendingRequest] = deque()


class PendingRequest:
    __slots__ = (
        "alone",
        "arrived",
        "broker",
        "completed",
        "connection",
        "endpoint",
        "fate",
        "ghost",
        "send",
        "sent_at",
        "silence",
        "timeout",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        send: Send,
        broker: int,
        connection: Connection,
        sent_at: float,
    ) -> None:
        self.endpoint = endpoint
        self.send = send
        self.broker = broker
        self.connection = connection
        self.sent_at = sent_at
        self.fate: RequestFate | None = None
        self.timeout: Alarm | None = None
        # The alarm that looks whether its connection is silent.
        self.silence: Alarm | None = None
        self.completed = False
        self.arrived = False
        self.ghost = False
        self.alone = len(connection.outstanding) == 0

    def complete(self) -> None:
        """It has its response, or has failed."""
        self.completed = True
        for alarm in (self.timeout, self.silence):
            if alarm is not None:
                alarm.cancel()

    @property
    def silent_since(self) -> float:
        """Since when its connection is silent."""
        return max(self.connection.heard_at, self.sent_at)

    def silent_at(self, times: int = 1) -> float:
        """When its connection has been silent for so many times the silence timeout."""
        silence_timeout = self.connection.link.silence_timeout(self.send.silence_timeout)
        return self.silent_since + may_hold(self.send.message) + times * silence_timeout


class Network:
    """Carries requests and responses. ``fate`` decides on each request; ``slow`` is the share of
    packets that take up to 50 ms instead of 1 to 4."""

    def __init__(self, clock: Clock, rng: Random, service: BrokerService) -> None:
        self.fate: Callable[[int, Request], RequestFate | None] = lambda _client, _message: None
        # Told when a broker processes what a client has sent over a connection that it gave up.
        self.processed_late: Callable[[int, Request], None] = lambda _client, _message: None
        self.slow = 0.0
        self._clock = clock
        self._rng = rng
        self._service = service
        self._connections: dict[_Key, Connection] = {}
        self._cuts: dict[tuple[int, int | None], float] = {}
        # Until when packets of a client take how many seconds more.
        self._delays: dict[int, tuple[float, float]] = {}
        # A request is processed after the client had closed its connection: when it was sent.
        self.processing_ghost = False
        self.ghost_sent_at = 0.0

    # --- the client's side -----------------------------------------------------------------------

    def send(self, endpoint: Endpoint, send: Send) -> None:
        """Carry out a ``Send``."""
        clock = self._clock
        broker = self._service.resolve(send.node)
        if broker is None or not self._service.is_up(broker):
            failure = Failed(send.request_id, FailureKind.UNREACHABLE, f"no broker at {send.node}")
            clock.after(_REJECTED, lambda: endpoint.receive(failure))
            return
        key = (endpoint.client, broker, send.channel, endpoint.beside)
        connection = self._connections.get(key)
        latency = self._latency(endpoint.client)
        opening = 0.0
        if connection is None:
            opening = _CONNECT + 2 * self._delay(endpoint.client)
            connection = self._connections[key] = Connection(key, clock.now + opening, opening)
            latency += opening
        pending = PendingRequest(endpoint, send, broker, connection, clock.now)
        connection.outstanding[send.request_id] = pending
        timeout = opening + connection.link.silence_timeout(send.timeout)
        pending.timeout = clock.after(timeout, lambda: self._timed_out(pending))
        if math.isfinite(pending.silent_at()):
            pending.silence = clock.at(pending.silent_at(), lambda: self._is_silent(pending))
        pending.fate = self.fate(endpoint.client, send.message)
        arrival = max(clock.now + latency, connection.last_arrival)
        connection.last_arrival = arrival
        clock.at(arrival, lambda: self._arrive(pending))
        if pending.fate is RequestFate.LATE:
            pending.ghost = True
            clock.after(latency / 2, lambda: self.disconnect(pending.connection))
        elif pending.fate is RequestFate.LOST_BEFORE:
            clock.after(latency / 2, lambda: self.disconnect(pending.connection))

    def _timed_out(self, pending: PendingRequest) -> None:
        if not pending.completed:
            self._fail(pending, FailureKind.TIMEOUT)
            self.disconnect(pending.connection)

    def _is_silent(self, pending: PendingRequest) -> None:
        """Nothing may have been received since it was sent. Who was asked before its response
        before it."""
        connection = pending.connection
        if not connection.alive:
            return
        if next(iter(connection.outstanding.values())) is not pending:
            pending.silence = self._clock.after(0.1, lambda: self._is_silent(pending))
        elif (at := pending.silent_at()) > self._clock.now:
            pending.silence = self._clock.at(at, lambda: self._is_silent(pending))
        elif pending.silent_at(2) <= self._clock.now:
            self._fail(pending, FailureKind.SILENT)
            self.disconnect(connection)
        else:
            if connection.told_since != pending.silent_since and not pending.endpoint.beside:
                connection.told_since = pending.silent_since
                pending.endpoint.receive(ConnectionSilent(pending.send.node, pending.silent_since))
            pending.silence = self._clock.at(pending.silent_at(2), lambda: self._is_silent(pending))

    def probe(self, endpoint: Endpoint, probe: ProbeBroker) -> None:
        """Carry out a ``ProbeBroker``."""
        begun_at = self._clock.now
        broker = self._service.resolve(probe.node)
        reachable = (
            broker is not None
            and self._service.is_up(broker)
            and self._service.stalled_until(broker) <= begun_at
            and self._cut_until(endpoint.client, broker) <= begun_at
        )
        after = _CONNECT + 2 * self._delay(endpoint.client) if reachable else probe.silence_timeout
        probed = BrokerProbed(probe.node, begun_at, reachable)
        self._clock.after(after, lambda: endpoint.receive(probed))

    def drop_silent(self, client: int, drop: DropSilentConnections) -> None:
        """A client drops its connections on which nothing is received."""
        broker = self._service.resolve(drop.node)
        for (owner, other, _, beside), connection in tuple(self._connections.items()):
            if owner != client or beside or connection.heard_at >= drop.heard_before:
                continue
            asked = next(iter(connection.outstanding.values()), None)
            if asked is None or (other == broker and asked.sent_at <= drop.asked_before):
                self.disconnect(connection)

    def black_hole(self, client: int, broker: int | None) -> None:
        """From now on nothing passes on the connections that a client has to a broker (None: any),
        and neither side gets an error. It may open others."""
        for (owner, other, *_), connection in self._connections.items():
            if owner == client and broker in (None, other):
                connection.black_hole = True

    def swallowed(self, client: int, since: float) -> list[str]:
        """What a client has asked before ``since`` and waits for on dead connections."""
        return [
            f"{type(pending.send.message).__name__} to broker {broker} on {channel.value}"
            for (owner, broker, channel, _), connection in self._connections.items()
            if owner == client and connection.black_hole
            for pending in connection.outstanding.values()
            if pending.sent_at <= since
        ]

    def in_flight(self, client: int, send: Send) -> bool:
        """Whether a request of this kind waits for its response on this channel."""
        broker = self._service.resolve(send.node)
        if broker is None:
            return False
        connection = self._connections.get((client, broker, send.channel, False))
        return connection is not None and any(
            _kind(pending.send.message) == _kind(send.message) and not pending.completed
            for pending in connection.outstanding.values()
        )

    def delay(self, client: int, seconds: float, until: float) -> None:
        """Let each packet of a client take so many seconds more, each way, before ``until``."""
        self._delays[client] = until, seconds

    def _delay(self, client: int) -> float:
        until, seconds = self._delays.get(client, (0.0, 0.0))
        return seconds if self._clock.now < until else 0.0

    def _fail(self, pending: PendingRequest, kind: FailureKind) -> None:
        pending.complete()
        event = Failed(pending.send.request_id, kind, kind.value)
        self._clock.after(0.0, lambda: pending.endpoint.receive(event))

    def disconnect(self, connection: Connection) -> None:
        """Break a connection. What was sent may still be processed."""
        if not connection.alive:
            return
        connection.alive = False
        if self._connections.get(connection.key) is connection:
            del self._connections[connection.key]
        ghosts_live = self._rng.random() < 0.5
        connection.ghost_delay = self._rng.random() * _LONGEST_GHOST
        for pending in connection.outstanding.values():
            if not pending.completed:
                self._fail(pending, FailureKind.DISCONNECTED)
            if not pending.arrived and pending.fate is not RequestFate.LOST_BEFORE:
                pending.ghost = pending.ghost or ghosts_live
        connection.waiting.clear()

    def reset(self, client: int, node: Node, channel: Channel) -> None:
        """A client drops one of its connections."""
        broker = self._service.resolve(node)
        if broker is not None and (client, broker, channel, False) in self._connections:
            self.disconnect(self._connections[client, broker, channel, False])

    def disconnect_client(self, client: int, broker: int | None = None) -> None:
        """Break all connections of a client, or those to one broker."""
        for (owner, other, *_), connection in tuple(self._connections.items()):
            if owner == client and (broker is None or other == broker):
                self.disconnect(connection)

    def disconnect_broker(self, broker: int) -> None:
        """A broker is gone: what has not reached it never will."""
        for (_, other, *_), connection in tuple(self._connections.items()):
            if other == broker:
                for pending in connection.outstanding.values():
                    pending.fate = RequestFate.LOST_BEFORE
                self.disconnect(connection)

    def cut(self, client: int, broker: int | None, until: float) -> None:
        """Let no packet pass between a client and a broker (None: any) before ``until``."""
        self._cuts[client, broker] = until

    def _cut_until(self, client: int, broker: int) -> float:
        if not self._cuts:
            return 0.0
        return max(self._cuts.get((client, None), 0.0), self._cuts.get((client, broker), 0.0))

    # --- the broker's side -----------------------------------------------------------------------

    def _latency(self, client: int) -> float:
        draw = self._rng.random()
        delay = self._delay(client) if self._delays else 0.0
        if self.slow and draw < self.slow:
            return delay + self._rng.random() * 0.05
        return delay + 0.0005 + draw * 0.002

    def _arrive(self, pending: PendingRequest) -> None:
        connection = pending.connection
        if connection.black_hole or (not connection.alive and not pending.ghost):
            return
        broker, client = pending.broker, pending.endpoint.client
        blocked = max(self._cut_until(client, broker), self._service.stalled_until(broker))
        if blocked > self._clock.now:
            if connection.alive:
                connection.last_arrival = max(connection.last_arrival, blocked)
                self._clock.at(blocked, lambda: self._arrive(pending))
            return
        if not self._service.is_up(broker):
            return
        if not connection.alive:
            if not pending.arrived:
                pending.arrived = True
                self._clock.after(connection.ghost_delay, lambda: self._process_ghost(pending))
            return
        pending.arrived = True
        if connection.busy:
            connection.waiting.append(pending)
        else:
            self._process(pending)

    def _process_ghost(self, pending: PendingRequest) -> None:
        # What stands behind a parked request on a dead connection is never read.
        if self._service.is_up(pending.broker) and not pending.connection.busy:
            self.processing_ghost = True
            self.ghost_sent_at = pending.sent_at
            message = pending.send.message
            self._service.handle(
                pending.broker, pending.endpoint.client, message, lambda _response: None
            )
            self.processing_ghost = False
            self.processed_late(pending.endpoint.client, message)

    def _process(self, pending: PendingRequest) -> None:
        pending.connection.busy = True
        self._service.handle(
            pending.broker,
            pending.endpoint.client,
            pending.send.message,
            lambda response: self._respond(pending, response),
        )

    def _respond(self, pending: PendingRequest, response: Response) -> None:
        connection = pending.connection
        if not connection.alive:
            return
        if pending.fate is RequestFate.LOST_AFTER:
            self._clock.after(0.0, lambda: self.disconnect(connection))
            return
        latency = self._latency(pending.endpoint.client)
        at = max(self._clock.now + latency, connection.last_response)
        connection.last_response = at
        self._clock.at(at, lambda: self._deliver(pending, response))
        # Not at once: the broker may be in the midst of responding to several.
        self._clock.after(0.0, lambda: self._next(connection))

    def _next(self, connection: Connection) -> None:
        connection.busy = False
        if connection.alive and connection.waiting:
            self._process(connection.waiting.popleft())

    def _deliver(self, pending: PendingRequest, response: Response) -> None:
        if pending.completed or pending.connection.black_hole:
            return
        client, broker = pending.endpoint.client, pending.broker
        blocked = self._cut_until(client, broker)
        if blocked > self._clock.now:
            self._clock.at(blocked, lambda: self._deliver(pending, response))
            return
        pending.complete()
        connection = pending.connection
        connection.outstanding.pop(pending.send.request_id, None)
        if pending.alone and not may_hold(pending.send.message):
            since = max(pending.sent_at, connection.heard_at)
            connection.link.response_took(self._clock.now - since)
        connection.heard_at = self._clock.now
        pending.endpoint.receive(Replied(pending.send.request_id, response))

    def outstanding(self, client: int) -> list[str]:
        """What a client waits for, for people."""
        return [
            f"{type(pending.send.message).__name__} to broker {broker} on {channel.value}"
            for (owner, broker, channel, _), connection in self._connections.items()
            if owner == client
            for pending in connection.outstanding.values()
        ]
