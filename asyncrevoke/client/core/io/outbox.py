"""Collects the effects of the core, and passes each response to the method given with the request.

``on_reply``, ``on_timer`` and the like are methods of the class that sends the request or sets the
timer: what happens next is read where they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    BatchDecoded,
    BrokerProbed,
    BrokerThrottled,
    CancelTimer,
    Channel,
    Compute,
    Computed,
    ConnectionSilent,
    DecodeBatch,
    Effect,
    Emit,
    Event,
    Failed,
    FailureKind,
    Node,
    OtherBroker,
    Replied,
    ResetConnection,
    Send,
    SetTimer,
    StopBackgroundHeartbeat,
    TimerFired,
    WakePoller,
)
from asyncrevoke.client.core.io.response_checks import find_contradiction
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.messages import Request, Response
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch

Reply: TypeAlias = Response | Failed
OnReply: TypeAlias = Callable[[float, Reply], None]
OnBackgroundReply: TypeAlias = Callable[[float, float, Reply], None]
OnDecoded: TypeAlias = Callable[[float, Sequence[Record] | CorruptBatch], None]
OnTimer: TypeAlias = Callable[[float], None]
OnComputed: TypeAlias = Callable[[float, object], None]

_T = TypeVar("_T")

LARGE_FROM = 5_000
"""A computation of this size takes tens of milliseconds."""


class Outbox:
    """Collects effects in order, and passes each response to the method given with its request.

    Deterministic: the same calls give the same effects. ``silence_timeout``: seconds that a
    connection with an outstanding request may be silent. Computations with a size of ``large_from``
    or more run in a thread.
    """

    def __init__(self, silence_timeout: float = float("inf"), large_from: int = LARGE_FROM) -> None:
        self.silence_timeout = silence_timeout
        self._large_from = large_from
        self._effects: list[Effect] = []
        self._replies: dict[int, OnReply] = {}
        # Requests without a response.
        self._asked: dict[int, Send] = {}
        self._decodes: dict[int, OnDecoded] = {}
        self._computations: dict[int, OnComputed] = {}
        self._timers: dict[str, OnTimer] = {}
        self._on_background_reply: OnBackgroundReply | None = None
        self._background_id = 0
        self._background_from = 0
        self._next_request = 0
        self._woken = False

    def send(
        self, message: Request, node: Node, channel: Channel, timeout: float, on_reply: OnReply
    ) -> int:
        """Send ``message``; ``on_reply(now, reply)`` gets the response or the failure."""
        self._next_request += 1
        self._replies[self._next_request] = on_reply
        send = Send(self._next_request, message, node, channel, timeout, self.silence_timeout)
        self._asked[self._next_request] = send
        self._effects.append(send)
        return self._next_request

    def set_silence_timeout(self, seconds: float) -> None:
        """Set the silence timeout of later requests, from the session that the group grants."""
        self.silence_timeout = seconds

    def awaits(self, node: Node) -> bool:
        """Whether a request to this broker is outstanding."""
        return any(send.node == node for send in self._asked.values())

    def asked_by(self, event: Event) -> Node | None:
        """The broker of the request whose result this event is, before the event is routed."""
        if isinstance(event, (Replied, Failed)):
            send = self._asked.get(event.request_id)
            return None if send is None else send.node
        return None

    def redirect(self, request_id: int, on_reply: OnReply) -> None:
        """Pass the response to this outstanding request to ``on_reply`` instead."""
        self._replies[request_id] = on_reply

    def forget(self, request_id: int) -> None:
        """Ignore the response to this request."""
        self._replies.pop(request_id, None)

    def decode(
        self,
        batch: RecordBatch,
        partition: TopicPartition,
        tracker_id: int,
        from_offset: int,
        on_decoded: OnDecoded,
    ) -> None:
        """Decode this batch in a thread; ``on_decoded(now, records)`` gets the result."""
        self._next_request += 1
        self._decodes[self._next_request] = on_decoded
        self._effects.append(
            DecodeBatch(self._next_request, batch, partition, tracker_id, from_offset)
        )

    def compute(
        self,
        now: float,
        size: int,
        work: Callable[[], _T],
        on_computed: Callable[[float, _T | Exception], None],
    ) -> int | None:
        """Pass the result of ``work``, or its exception, to ``on_computed(now, result)``: at once
        and return None, or later if ``size`` is large and return an id. A unit of ``size`` takes
        microseconds."""
        self._next_request += 1
        effect = Compute(self._next_request, work)
        self._computations[effect.computation_id] = cast("OnComputed", on_computed)
        if size >= self._large_from:
            self._effects.append(effect)
            return effect.computation_id
        self.route(now, effect.run())
        return None

    def forget_computation(self, computation_id: int) -> None:
        """Ignore the result of this computation."""
        self._computations.pop(computation_id, None)

    def start_background_heartbeat(
        self,
        message: Request,
        node: Node,
        interval: float,
        timeout: float,
        next_message: Callable[[Response], Request | None],
        on_reply: OnBackgroundReply,
        *,
        same_membership: bool = False,
    ) -> None:
        """Allow this heartbeat while the event loop is blocked; see :class:`BackgroundHeartbeat`.

        ``on_reply(now, sent_at, reply)`` gets each response, also to earlier heartbeats of the
        ``same_membership``.
        """
        self._background_id += 1
        if not same_membership:
            self._background_from = self._background_id
        self._on_background_reply = on_reply
        self._effects.append(
            BackgroundHeartbeat(self._background_id, message, node, interval, timeout, next_message)
        )

    def stop_background_heartbeat(self) -> None:
        """Allow no background heartbeats, and drop late responses."""
        if self._on_background_reply is not None:
            self._background_id += 1
            self._background_from = self._background_id
            self._on_background_reply = None
            self._effects.append(StopBackgroundHeartbeat())

    def set_timer(self, key: str, at: float, on_timer: OnTimer, *, spread: float = 0.0) -> None:
        """Call ``on_timer(now)`` at ``at``, up to ``spread`` s later; replaces the key's timer."""
        self._timers[key] = on_timer
        self._effects.append(SetTimer(key, at, spread))

    def cancel_timer(self, key: str) -> None:
        """Forget a timer, if it is set."""
        if self._timers.pop(key, None) is not None:
            self._effects.append(CancelTimer(key))

    def has_timer(self, key: str) -> bool:
        """Whether this timer is set and has not fired."""
        return key in self._timers

    def wake(self) -> None:
        """Wake a waiting poll; one effect between two takes."""
        if not self._woken:
            self._woken = True
            self._effects.append(WakePoller())

    @property
    def pending(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._effects)

    def put(self, effect: Effect) -> None:
        """Append any other effect."""
        self._effects.append(effect)

    def emit(self, event: log_events.LogEvent, /, **fields: object) -> None:
        """Append an event for logs, journal and dashboard."""
        self._effects.append(Emit(event.level, event.name, fields))

    def route(self, now: float, event: Event) -> None:
        """Pass an event to the part that has asked for it; drop a response that was forgotten."""
        match event:
            case Replied(request_id, message):
                send = self._asked.pop(request_id, None)
                if (on_reply := self._replies.pop(request_id, None)) is not None:
                    on_reply(now, message if send is None else self._checked(send, message))
            case Failed(request_id):
                self._asked.pop(request_id, None)
                if (on_reply := self._replies.pop(request_id, None)) is not None:
                    on_reply(now, event)
            case BackgroundHeartbeatReply(heartbeat_id, sent_at, reply):
                if heartbeat_id >= self._background_from and self._on_background_reply is not None:
                    self._on_background_reply(now, sent_at, reply)
            case BatchDecoded(request_id, records):
                if (on_decoded := self._decodes.pop(request_id, None)) is not None:
                    on_decoded(now, records)
            case Computed(computation_id, result):
                if (on_computed := self._computations.pop(computation_id, None)) is not None:
                    on_computed(now, result)
            case ConnectionSilent() | BrokerThrottled() | OtherBroker() | BrokerProbed():
                pass  # handled by SilentBrokers before
            case TimerFired(key):
                if (on_timer := self._timers.pop(key, None)) is not None:
                    on_timer(now)

    def _checked(self, send: Send, message: Response) -> Reply:
        wrong = find_contradiction(send.message, message)
        if wrong is None:
            return message
        self.emit(
            log_events.INVALID_RESPONSE,
            request=type(send.message).__name__,
            node=send.node.address,
            problem=wrong,
        )
        self._effects.append(ResetConnection(send.node, send.channel))
        return Failed(send.request_id, FailureKind.MALFORMED, f"an impossible response: {wrong}")

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        self._woken = False
        return effects
