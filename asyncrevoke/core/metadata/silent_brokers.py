"""What follows when a broker answers nothing and closes nothing, and when it answers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import (
    BrokerProbed,
    ConnectionSilent,
    DropSilentConnections,
    Failed,
    FailureKind,
    ProbeBroker,
)

if TYPE_CHECKING:
    from asyncrevoke.core.io.effects import Event, Node
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.core.metadata.coordinator import Coordinator

_NEVER = float("inf")


class SilentBrokers:
    """Sees each event before whoever asked.

    When nothing is received on one connection of a broker for the patience, either that connection
    is dead, or the broker is, or an answer is late. So other brokers are asked first for what any
    broker knows, the coordinator is looked for if it is this one, and the broker is probed by a
    connection of its own. If it answers there before anything is received on those that were asked
    before, they are dead, and dropped at once. If it does not, nothing is given up here: its
    requests fail in time, or when another broker has become the coordinator or the leader.
    """

    def __init__(self, outbox: Outbox, cluster: ClusterMetadata, coordinator: Coordinator) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._coordinator = coordinator
        # Brokers that are probed, and since when nothing was received.
        self._probed: dict[Node, float] = {}

    def handle(self, now: float, event: Event) -> None:
        """An event is about to be handled."""
        match event:
            case ConnectionSilent(node, since):
                self._silent(now, node, since)
            case BrokerProbed(node, begun_at, answered):
                since = self._probed.pop(node, _NEVER)
                if answered and since != _NEVER:
                    heard_before = since + self._outbox.patience / 2
                    self._coordinator.reached(now, node)
                    self._outbox.put(DropSilentConnections(node, heard_before, begun_at))
            case Failed(kind=kind):
                if kind in (FailureKind.UNREACHABLE, FailureKind.SILENT):
                    self._failed(now, event, kind)
            case _:
                if (asked := self._outbox.asked_by(event)) is not None:
                    self._cluster.note_success(asked)
                    self._coordinator.heard_from(asked)

    def _silent(self, now: float, node: Node, since: float) -> None:
        self._outbox.emit(
            "warning",
            "a broker does not answer; trying a new connection",
            node=f"{node.host}:{node.port}",
            seconds=round(now - since, 1),
        )
        self._cluster.note_failure(node)
        self._coordinator.check_silent(now, node)
        self._cluster.refresh(now, f"broker {node.node_id} does not answer")
        if node not in self._probed:
            self._probed[node] = since
            self._outbox.put(ProbeBroker(node, self._outbox.patience))

    def _failed(self, now: float, event: Failed, kind: FailureKind) -> None:
        node = self._outbox.asked_by(event)
        if node is None:
            return
        self._cluster.note_failure(node)
        if kind is FailureKind.SILENT:
            self._cluster.refresh(now, f"broker {node.node_id} does not answer")
