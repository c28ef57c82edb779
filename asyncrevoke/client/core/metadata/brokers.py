"""The brokers that metadata has named, and the bootstrap addresses: which do not respond, throttle
a connection, or are other ones than metadata says."""

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
    Node,
    OtherBroker,
    ProbeBroker,
)
from asyncrevoke.client.core.io.response_checks import check_address
from asyncrevoke.client.printable import host_and_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.core.io.effects import Event
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.protocol.messages import BrokerMetadata

# Seconds without a throttle after which the next one is news.
_THROTTLED_AGAIN = 60.0
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


class KnownBrokers:
    """Chooses the broker of a request that any broker can handle."""

    def __init__(self, bootstrap: Sequence[Node]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._nodes: dict[int, Node] = {}
        self._racks: dict[int, str] = {}
        self._failed: dict[int, Node] = {}
        self._turn = -1
        # When the throttle time of a broker ends, by its address.
        self._throttled_until: dict[tuple[str, int], float] = {}

    @property
    def failed(self) -> tuple[Node, ...]:
        """The brokers that could not be reached, or do not respond."""
        return tuple(self._failed.values())

    @property
    def racks(self) -> Mapping[int, str]:
        """The racks of the brokers that have one, by their ids."""
        return self._racks

    def all(self) -> tuple[Node, ...]:
        """The brokers that metadata names; the bootstrap addresses before the first response."""
        return tuple(self._nodes.values()) or self._bootstrap

    def node(self, node_id: int) -> Node | None:
        """A broker by its id."""
        return self._nodes.get(node_id)

    def any_node(self) -> Node:
        """A broker for a request that any broker can handle; another one each time.

        When all known brokers have failed, the bootstrap addresses are tried again, because the
        cluster may have moved (KIP-899).
        """
        for nodes in (tuple(self._nodes.values()), self._bootstrap):
            if candidates := [node for node in nodes if self._failed.get(node.node_id) != node]:
                self._turn += 1
                return candidates[self._turn % len(candidates)]
        self._failed.clear()
        self._turn += 1
        everyone = self.all()
        return everyone[self._turn % len(everyone)]

    def note_failure(self, node: Node) -> None:
        """This broker could not be reached: others are asked first."""
        self._failed[node.node_id] = node

    def note_success(self, node: Node) -> None:
        """This broker responds."""
        self._failed.pop(node.node_id, None)

    def note_throttle(self, now: float, node: Node, seconds: float) -> bool:
        """A connection to this broker is throttled (KIP-219). Returns whether none was shortly
        before."""
        known = self._throttled_until
        for address, until in list(known.items()):
            if until + _THROTTLED_AGAIN < now:
                del known[address]
        is_new = node[1:] not in known
        known[node[1:]] = max(now + seconds, known.get(node[1:], now))
        return is_new

    def throttled(self, now: float) -> dict[str, float]:
        """The seconds that are left of the throttle times of brokers, by ``host:port``."""
        return {
            host_and_port(host, port): until - now
            for (host, port), until in self._throttled_until.items()
            if until > now
        }

    def learn(self, brokers: Sequence[BrokerMetadata]) -> None:
        """Take the brokers of a metadata response, in place of those known before."""
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in sorted(brokers, key=lambda broker: broker.node_id)
        }
        self._racks = {broker.node_id: broker.rack for broker in brokers if broker.rack}
        # A broker that is listed at another address than the one that failed has not failed.
        for node_id, node in list(self._failed.items()):
            if node_id >= 0 and self._nodes.get(node_id) != node:
                del self._failed[node_id]

    def learn_address(self, node_id: int, addresses: Mapping[int, BrokerMetadata]) -> bool:
        """Whether the address of a broker is known. One that metadata does not name is taken from
        ``addresses``, until the next metadata response."""
        if node_id in self._nodes:
            return True
        broker = addresses.get(node_id)
        if broker is None or check_address(node_id, broker.host, broker.port) is not None:
            return False
        self._nodes[node_id] = Node(node_id, broker.host, broker.port)
        return True

    def forget(self) -> Iterable[Node]:
        """Forget the brokers, so that the bootstrap addresses are next. Returns both."""
        former = (*self._nodes.values(), *self._bootstrap)
        self._nodes = {}
        self._racks = {}
        self._failed.clear()
        return former
