"""Which broker coordinates our group, and the search for it when it is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Channel, Failed, FailureKind, Node
from asyncrevoke.errors import (
    AuthenticationError,
    FatalError,
    GroupAuthorizationError,
    UnsupportedVersionError,
)
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.cluster import Cluster
    from asyncrevoke.core.outbox import Outbox, Reply

_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 1.0
_WARN_AFTER = 5.0
# One broker that accepts connections and never answers must not keep us from asking the next one.
_PATIENCE = 10.0
# The others name a coordinator that is gone until they have noticed it: what fails so soon after
# it was found is no news, and is not looked for again at once.
_SETTLED_AFTER = 0.25


class Coordinator:
    """Finds the group coordinator, again whenever somebody learns that it has moved.

    ``node`` is None while it is not known. What must wait for it registers with
    :meth:`call_when_known`; one waiter per key. ``term`` grows when it is found, or says that it is
    loading: what was agreed on in one term and not written, the next one does not know.
    """

    def __init__(self, outbox: Outbox, config: ConsumerConfig, cluster: Cluster) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self.node: Node | None = None
        self.term = 0
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None
        self._waiting: dict[str, Callable[[float], None]] = {}
        self._searching = False
        self._backoff = _FIRST_BACKOFF
        self._since: float | None = None
        self._warned_at: float | None = None
        self._found_at = float("-inf")

    def call_when_known(self, key: str, then: Callable[[float], None], now: float) -> None:
        """Call ``then(now)`` at once if the coordinator is known, else when it is found."""
        if self.node is not None:
            then(now)
            return
        self._waiting[key] = then
        self._search(now)

    def unknown(self, now: float, why: str) -> None:
        """Somebody learnt that the coordinator is not where we thought; look for it again."""
        if self.node is not None:
            self.node = None
            if now - self._found_at < _SETTLED_AFTER:
                self._outbox.emit("debug", "coordinator still unknown", reason=why)
                self._retry(now, why)
                return
            self._outbox.emit("info", "coordinator unknown", reason=why)
            self._backoff = _FIRST_BACKOFF
            self._since = self._warned_at = None
        self._search(now)

    def loads(self) -> None:
        """It answered that it is loading: it has become the coordinator, perhaps once more."""
        self.term += 1

    def _search(self, now: float) -> None:
        if self._searching or self._outbox.has_timer("coordinator"):
            return
        if self._since is None:
            self._since = now
        self._searching = True
        target = self._cluster.any_node()
        group_id = self._config.group_id or ""
        self._outbox.send(
            FindCoordinatorRequest(group_id=group_id),
            target,
            Channel.METADATA,
            min(self._config.request_timeout, _PATIENCE),
            lambda later, reply: self._answered(later, target, reply),
        )

    def _answered(self, now: float, asked: Node, reply: Reply) -> None:
        self._searching = False
        match reply:
            case FindCoordinatorResponse(error=ErrorCode.none):
                self._found(now, Node(reply.node_id, reply.host, reply.port))
            case FindCoordinatorResponse(error=ErrorCode.group_authorization_failed):
                self.on_error(
                    now,
                    GroupAuthorizationError(
                        f"not authorized to use group {self._config.group_id!r}: "
                        "grant READ on the group, or choose another group_id"
                    ),
                )
            case FindCoordinatorResponse(error=error):
                self._retry(now, error.name)
            case Failed(kind=FailureKind.AUTHENTICATION, detail=detail):
                self.on_error(now, AuthenticationError(detail))
            case Failed(kind=FailureKind.UNSUPPORTED, detail=detail):
                self.on_error(now, UnsupportedVersionError(detail))
            case Failed(detail=detail):
                self._cluster.note_failure(asked)
                self._retry(now, detail)
            case _:
                self.on_error(now, FatalError(f"unexpected answer {type(reply).__name__}"))

    def _found(self, now: float, node: Node) -> None:
        self.node = node
        self.term += 1
        self._found_at = now
        self._outbox.emit("debug", "coordinator found", node=node.node_id)
        waiting, self._waiting = self._waiting, {}
        for key, then in waiting.items():
            # One of them may have found out that this is not the coordinator either.
            self.call_when_known(key, then, now)

    def _retry(self, now: float, why: str) -> None:
        self._outbox.set_timer(
            "coordinator", now + self._backoff, self._search, spread=self._backoff
        )
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)
        waited = now - (self._since if self._since is not None else now)
        if waited >= _WARN_AFTER and (
            self._warned_at is None or now - self._warned_at >= 2 * _WARN_AFTER
        ):
            self._warned_at = now
            self._outbox.emit(
                "warning",
                "waiting for the group coordinator",
                group=self._config.group_id,
                seconds=round(waited, 1),
                last_answer=why,
            )
