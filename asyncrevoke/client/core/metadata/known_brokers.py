"""The brokers that metadata has named, the bootstrap addresses, which do not respond, and which
throttle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.io.response_checks import check_address
from asyncrevoke.client.printable import host_and_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.protocol.messages import BrokerMetadata

# Seconds without a throttle after which the next one is news.
_THROTTLED_AGAIN = 60.0


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
