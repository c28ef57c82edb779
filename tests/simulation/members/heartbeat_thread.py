"""The thread that keeps a frozen member's membership, as the runtime's does.

It watches the event loop, and sends the heartbeats that the core allows over a connection of its
own. The event loop processes the responses when it runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Channel,
    Event,
    Failed,
    Replied,
    Send,
)
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.cluster.network import Network

    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.testing.fake_kafka.clock import Clock

# So long after the loop was blocked it is noticed.
PATIENCE = 2.0


class FreezableMember(Protocol):
    """The member whose thread it is."""

    @property
    def client(self) -> int:
        """Which client of the world it is."""
        ...

    @property
    def now(self) -> float:
        """Its own clock."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        ...

    @property
    def frozen(self) -> bool:
        """Whether its event loop is blocked."""
        ...


class SimulatedHeartbeatThread:
    """``deliver`` takes a response when the event loop runs again."""

    beside = True

    def __init__(
        self,
        clock: Clock,
        network: Network,
        member: FreezableMember,
        deliver: Callable[[BackgroundHeartbeatReply], None],
    ) -> None:
        self.client = member.client
        self.heartbeats = 0
        self._clock = clock
        self._network = network
        self._member = member
        self._deliver = deliver
        self._heartbeat: BackgroundHeartbeat | None = None
        self._in_flight: tuple[BackgroundHeartbeat, Request, float] | None = None
        self._requests = 0
        self._pauses = False

    def set_heartbeat(self, heartbeat: BackgroundHeartbeat | None) -> None:
        """This, or none, may be sent from now on."""
        self._heartbeat = heartbeat

    def blocked(self) -> None:
        """The event loop is blocked from now on."""
        self._clock.after(PATIENCE, self._take_over)

    def _take_over(self) -> None:
        heartbeat = self._heartbeat
        if heartbeat is not None and not self._pauses:
            self._send(heartbeat, heartbeat.message)

    def _send(self, heartbeat: BackgroundHeartbeat, message: Request) -> None:
        self._pauses = False
        busy = self._in_flight is not None
        if busy or not self._member.frozen or heartbeat is not self._heartbeat:
            return
        if not self._member.alive:
            return
        self._requests += 1
        self.heartbeats += 1
        self._in_flight = heartbeat, message, self._member.now
        timeout = heartbeat.timeout
        send = Send(
            self._requests,
            message,
            heartbeat.node,
            Channel.HEARTBEAT,
            timeout,
            silence_timeout=timeout / 2,
        )
        self._network.send(self, send)

    def receive(self, event: Event) -> None:
        """The response to what was sent."""
        assert isinstance(event, (Replied, Failed))
        if self._in_flight is None:
            return
        (heartbeat, message, sent_at), self._in_flight = self._in_flight, None
        after: Request | None = message
        if isinstance(event, Replied):
            self._deliver(BackgroundHeartbeatReply(heartbeat.heartbeat_id, sent_at, event.message))
            after = heartbeat.next_message(event.message)
        else:
            self._deliver(BackgroundHeartbeatReply(heartbeat.heartbeat_id, sent_at, event))
            if event.kind in FATAL_FAILURES:
                after = None
        if after is not None:
            again = after
            self._pauses = True
            elapsed = self._member.now - sent_at
            pause = max(0.0, heartbeat.interval - elapsed)
            self._clock.after(pause, lambda: self._send(heartbeat, again))
