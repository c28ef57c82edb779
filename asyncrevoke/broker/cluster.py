"""Several brokers as one cluster on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.broker.broker import START_TIMEOUT, KafkaBroker
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.broker.process.properties import BrokerNode, new_cluster_id
from asyncrevoke.broker.running import RunningBroker
from asyncrevoke.client.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.broker.installation.jars import OnProgress
    from asyncrevoke.broker.listeners.security import ClientOptions, Security


_RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


class KafkaCluster(RunningBroker):
    """Three brokers (or ``size``) that are also controllers; a context manager.

    Each of ``brokers`` can be stopped, killed, paused and restarted alone. Each has its own rack,
    ``rack-1`` and so on: a consumer with ``client_rack`` reads from the replica there (KIP-392).
    Topics, offsets and transactions have three replicas. :class:`KafkaBroker` describes the other
    arguments.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        security: Security | None = None,
        features: Mapping[str, int] | None = None,
        quick: bool = True,
        heap: str = "384m",
        tools: bool = False,
        start_timeout: float = START_TIMEOUT,
        on_progress: OnProgress | None = None,
    ) -> None:
        ports = free_ports()
        nodes = tuple(BrokerNode.choose(ports, node_id) for node_id in range(1, size + 1))
        cluster_id = new_cluster_id()
        self.brokers: list[KafkaBroker] = []
        for node in nodes:
            broker = KafkaBroker(
                properties={**_RACKS, "broker.rack": f"rack-{node.node_id}", **(properties or {})},
                security=security,
                features=features,
                quick=quick,
                heap=heap,
                tools=tools,
                start_timeout=start_timeout,
                on_progress=on_progress,
            )
            broker.join_cluster(node.node_id, nodes, cluster_id)
            self.brokers.append(broker)

    @property
    @override
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        addresses = [
            address
            for broker in self.brokers
            if broker.running
            for address in broker.admin_addresses
        ]
        if not addresses:
            raise IllegalStateError("no broker of the cluster runs: call start() first")
        return addresses

    @override
    def client_options(self, user: str | None = None) -> ClientOptions:
        options = self.brokers[0].client_options(user)
        options["bootstrap_servers"] = self.bootstrap_servers
        return options

    @override
    def start(self) -> None:
        """Start every broker that does not run; returns when all brokers know each other. Raises
        BrokerStartError."""
        for broker in self.brokers:
            if not broker.running:
                broker.launch()
        everyone = {broker.node_id for broker in self.brokers}
        for broker in self.brokers:
            broker.wait_until_ready(everyone)

    @override
    def close(self) -> None:
        """End all brokers at once and remove their data."""
        for broker in self.brokers:
            broker.close()
