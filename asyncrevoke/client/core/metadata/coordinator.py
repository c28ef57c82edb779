"""The group coordinator, and the search for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, ResetConnection
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.errors import FatalError, GroupAuthorizationError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.reactions import MetadataReactions

_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 1.0
_WARN_AFTER = 5.0
# A coordinator that has not responded since it was found is looked for again: other brokers name a
# dead coordinator until the cluster has noticed.
_LOOK_AGAIN = 1.0
_CHECK_TIMER = "coordinator-check"
_GROUP_CHANNELS = (Channel.JOIN, Channel.HEARTBEAT, Channel.COMMIT)
# A failure so soon after the coordinator was found starts no search at once: other brokers may
# still name a dead one.
_STABLE_AFTER = 0.25
# Within this time, requests on dropped connections of a broker that responds on a new one fail.
_DROPPED_WITHIN = 0.5


class Coordinator:
    """Finds the group coordinator, and again when it has moved.

    ``node`` is None while it is unknown; :meth:`call_when_known` waits for it, one waiter per key.
    ``term`` grows when it is found, or responds that it is loading. A coordinator of the next term
    knows only what was written to ``__consumer_offsets`` before.

    A coordinator that does not respond stays so, and is looked for again meanwhile. When another
    one is found, group requests on connections to the former one fail, and go to the new one.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        reactions: MetadataReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self.node: Node | None = None
        self.term = 0
        self._reactions = reactions
        self._waiting: dict[str, Callable[[float], None]] = {}
        self._searching = False
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self._since: float | None = None
        self._warned_at: float | None = None
        self._found_at = float("-inf")
        # Its connections that are being dropped, because it responds on a new one.
        self._dropped = 0
        self._dropped_until = float("-inf")
        self._former: Node | None = None
        # Whether it has not responded since it was found.
        self._unheard_from = False

    def call_when_known(self, key: str, send: Callable[[float], None], now: float) -> None:
        """Call ``send(now)``, a method of the caller, at once if the coordinator is known, else
        when it is found."""
        if self.node is not None:
            send(now)
            return
        self._waiting[key] = send
        self._search(now)

    def mark_unknown(self, now: float, why: str, asked: Node | None) -> None:
        """A response of ``asked`` shows that the coordinator has moved: look for it. Ignored if
        ``asked`` is a former coordinator."""
        if self.node is not None:
            if asked != self.node:
                return
            self._former, self.node = self.node, None
            if now - self._found_at < _STABLE_AFTER:
                self._outbox.emit(log_events.COORDINATOR_STILL_UNKNOWN, reason=why)
                self._retry(now, why)
                return
            self._outbox.emit(log_events.COORDINATOR_UNKNOWN, reason=why)
            self._backoff.succeeded()
            self._since = self._warned_at = None
        self._search(now)

    def no_response(self, now: float, why: str, asked: Node | None) -> None:
        """A request got no response from ``asked``: look for the coordinator.

        Not if the broker has just responded on a new connection: its other connections are dropped,
        and the request can be sent again at once.
        """
        if asked == self.node and self._dropped > 0 and now <= self._dropped_until:
            self._dropped -= 1
        else:
            self.mark_unknown(now, why, asked)

    def reached(self, now: float, node: Node) -> None:
        """A silent broker has responded on a new connection: its other connections are dropped."""
        if node == self.node:
            self._dropped = len(_GROUP_CHANNELS)
            self._dropped_until = now + _DROPPED_WITHIN

    def check_silent(self, now: float, node: Node) -> None:
        """A broker is silent: if it is the coordinator, ask others for it."""
        if node == self.node:
            self._unheard_from = True
            self._check(now)

    def heard_from(self, node: Node) -> None:
        """A broker has responded to a request."""
        if node == self.node:
            self._unheard_from = False

    def note_loading(self) -> None:
        """It responds that it is loading: it has just become the coordinator."""
        self.term += 1

    def _search(self, now: float) -> None:
        if self._searching or self._outbox.has_timer("coordinator"):
            return
        if self._since is None:
            self._since = now
        self._searching = True
        target = self._cluster.brokers.any_node()
        group_id = self._config.group_id or ""
        self._outbox.send(
            FindCoordinatorRequest(group_id=group_id),
            target,
            Channel.METADATA,
            self._config.request_timeout,
            lambda later, reply: self._find_coordinator_response_received(later, target, reply),
        )

    def _check(self, now: float) -> None:
        """Look for the coordinator if it has not responded since it was found."""
        if self.node is not None and self._unheard_from and self._outbox.awaits(self.node):
            self._search(now)

    def _check_later(self, now: float) -> None:
        self._outbox.set_timer(_CHECK_TIMER, now + _LOOK_AGAIN, self._check, spread=_LOOK_AGAIN / 4)

    def _find_coordinator_response_received(self, now: float, asked: Node, reply: Reply) -> None:
        self._searching = False
        match reply:
            case FindCoordinatorResponse(error=ErrorCode.none):
                self._found(now, Node(reply.node_id, reply.host, reply.port))
            case FindCoordinatorResponse(error=ErrorCode.group_authorization_failed):
                self._reactions.failed(
                    now,
                    GroupAuthorizationError(
                        f"not authorized to use group {self._config.group_id!r}: "
                        "grant READ on the group, or choose another group_id"
                    ),
                )
            case FindCoordinatorResponse(error=error):
                self._retry(now, error.name)
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._reactions.failed(now, fatal_error(failed))
            case Failed(detail=detail):
                self._cluster.brokers.note_failure(asked)
                self._retry(now, detail)
            case _:
                self._reactions.failed(
                    now, FatalError(f"unexpected response {type(reply).__name__}")
                )

    def _found(self, now: float, node: Node) -> None:
        if node == self.node:
            if self._unheard_from:
                self._check_later(now)
            return
        former, self._former = self.node or self._former, None
        if former is not None and former != node:
            for channel in _GROUP_CHANNELS:
                self._outbox.put(ResetConnection(former, channel))
        self.node = node
        self._unheard_from = True
        self._check_later(now)
        self.term += 1
        self._found_at = now
        self._outbox.emit(log_events.COORDINATOR_FOUND, node=node.node_id)
        waiting, self._waiting = self._waiting, {}
        for key, send in waiting.items():
            # One of them may have noticed that this is not the coordinator either.
            self.call_when_known(key, send, now)

    def _retry(self, now: float, why: str) -> None:
        if self.node is not None:
            self._check_later(now)
            return
        delay = self._backoff.failed()
        self._outbox.set_timer("coordinator", now + delay, self._search, spread=delay)
        waited = now - (self._since if self._since is not None else now)
        if waited >= _WARN_AFTER and (
            self._warned_at is None or now - self._warned_at >= 2 * _WARN_AFTER
        ):
            self._warned_at = now
            self._outbox.emit(
                log_events.WAITING_FOR_COORDINATOR,
                seconds=round(waited, 1),
                last_response=why,
            )
