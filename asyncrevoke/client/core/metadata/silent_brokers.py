"""Brokers that do not respond and do not close their connections, that throttle a connection, or
that are other ones than metadata says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    BrokerThrottled,
    ConnectionSilent,
    DropSilentConnections,
    Failed,
    FailureKind,
    OtherBroker,
    ProbeBroker,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Event, Node
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator

_NEVER = float("inf")
# Seconds between two attempts because of another broker.
_BOOTSTRAP_INTERVAL = 10.0


class SilentBrokers:
    """Handles each event before it is routed.

    If nothing is received on a connection for the silence timeout, the connection or the broker may
    be dead, or a response late. Then metadata is requested from other brokers, the coordinator is
    looked for if it is this broker, and the broker is probed on a new connection. If it responds
    there first, its silent connections are dropped at once. If not, their requests fail at their
    timeouts, or when another broker has become the coordinator or the leader.
    """

    def __init__(self, outbox: Outbox, cluster: ClusterMetadata, coordinator: Coordinator) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._coordinator = coordinator
        # Since when nothing was received of brokers that are being probed.
        self._probed: dict[Node, float] = {}
        # When the bootstrap addresses may be asked again because of another broker.
        self._bootstrap_from = -_NEVER

    def handle(self, now: float, event: Event) -> None:
        """Handle an event that is not routed yet."""
        match event:
            case ConnectionSilent(node, since):
                self._silent(now, node, since)
            case BrokerThrottled():
                self._throttled(now, event)
            case OtherBroker(node):
                self._is_other(now, node)
            case BrokerProbed(node, begun_at, reachable):
                since = self._probed.pop(node, _NEVER)
                if reachable and since != _NEVER:
                    # Connections that fell silent at about the same time are dropped, too.
                    heard_before = since + self._outbox.silence_timeout / 2
                    self._coordinator.reached(now, node)
                    self._outbox.put(DropSilentConnections(node, heard_before, begun_at))
            case Failed(kind=kind):
                if kind in (FailureKind.UNREACHABLE, FailureKind.SILENT):
                    self._failed(now, event, kind)
            case _:
                if (asked := self._outbox.asked_by(event)) is not None:
                    self._cluster.brokers.note_success(asked)
                    self._coordinator.heard_from(asked)

    def _silent(self, now: float, node: Node, since: float) -> None:
        self._outbox.emit(
            log_events.BROKER_SILENT, node=node.address, seconds=round(now - since, 1)
        )
        self._cluster.brokers.note_failure(node)
        self._coordinator.check_silent(now, node)
        self._cluster.refresh(now, f"broker {node.node_id} does not respond")
        if node not in self._probed:
            self._probed[node] = since
            self._outbox.put(ProbeBroker(node, self._outbox.silence_timeout))

    def _throttled(self, now: float, event: BrokerThrottled) -> None:
        news = self._cluster.brokers.note_throttle(now, event.node, event.throttle_time)
        self._outbox.emit(
            log_events.THROTTLED if news else log_events.STILL_THROTTLED,
            node=event.node.address,
            request=event.request,
            seconds=event.throttle_time,
        )

    def _is_other(self, now: float, node: Node) -> None:
        """Its address is that of another broker: the cluster may have moved as a whole. If the
        bootstrap addresses lead here again, requests to this broker go on to fail, and to be tried
        again."""
        if now < self._bootstrap_from:
            return
        self._bootstrap_from = now + _BOOTSTRAP_INTERVAL
        why = f"{node.address} is not broker {node.node_id} of the cluster any more"
        self._cluster.bootstrap_again(now, why)
        self._cluster.refresh(now, why)

    def _failed(self, now: float, event: Failed, kind: FailureKind) -> None:
        node = self._outbox.asked_by(event)
        if node is None:
            return
        self._cluster.brokers.note_failure(node)
        if kind is FailureKind.SILENT:
            self._cluster.refresh(now, f"broker {node.node_id} does not respond")
