"""The brokers of chaos runs, each behind a proxy that all members go through."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from chaos.environment.administration import USER
from chaos.environment.proxy import HOST, Proxy
from typing_extensions import override

from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.broker.process.properties import BROKERS, CLIENTS, BrokerNode, new_cluster_id
from asyncrevoke.broker.running import RunningBroker
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.observer import committed_offsets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from asyncrevoke.broker.listeners.security import ClientOptions
    from asyncrevoke.client.model import TopicPartition

# Of all members, also of those whose session the broker decides on (KIP-848); in seconds.
SESSION_TIMEOUT = 6.0
HEARTBEAT_INTERVAL = 0.5
# Of the records that a member of a share group has acquired.
LOCK = 6.0
_PROPERTIES = {
    "group.consumer.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
    "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL * 1000)),
    "group.share.min.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
    "group.share.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
    "group.share.min.heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL * 1000)),
    "group.share.heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL * 1000)),
    "group.share.min.record.lock.duration.ms": str(int(LOCK * 1000)),
    "group.share.record.lock.duration.ms": str(int(LOCK * 1000)),
    # Compaction begins within a run.
    "log.cleaner.backoff.ms": "500",
}


class Stage(RunningBroker):
    """One broker or several as a cluster; a context manager, as :class:`KafkaCluster` is.

    ``brokers[i]`` advertises ``proxy_ports[i]`` to members, who name themselves by SASL and may do
    only what :meth:`permit` says. Brokers among themselves, producers and
    administration use ``admin_addresses``, which no proxy stands in front of.
    """

    def __init__(self, size: int = 1) -> None:
        ports = free_ports()
        nodes = tuple(BrokerNode.choose(ports, node_id) for node_id in range(1, size + 1))
        cluster_id = new_cluster_id()
        self.proxy_ports = [next(ports) for _ in nodes]
        self.brokers: list[KafkaBroker] = []
        for node, port in zip(nodes, self.proxy_ports, strict=True):
            advertised = f"{CLIENTS}://{HOST}:{port},{BROKERS}://{HOST}:{node.brokers_port}"
            broker = KafkaBroker(
                properties={**_PROPERTIES, "advertised.listeners": advertised},
                security=Security(
                    protocol="SASL_PLAINTEXT", users={USER: f"{USER}-secret"}, acls=True
                ),
                heap="384m",
            )
            broker.join_cluster(node.node_id, nodes, cluster_id)
            self.brokers.append(broker)

    @property
    @override
    def bootstrap_servers(self) -> str:
        """The addresses of all proxies, separated by commas: for members."""
        return ",".join(f"{HOST}:{port}" for port in self.proxy_ports)

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        """``host:port`` of each running broker, which no proxy stands in front of."""
        return [
            address
            for broker in self.brokers
            if broker.running
            for address in broker.admin_addresses
        ]

    @property
    def direct(self) -> str:
        """``admin_addresses`` for clients that take one string: producers, audits."""
        return ",".join(self.admin_addresses)

    @override
    def client_options(self, user: str | None = None) -> ClientOptions:
        """What a member needs to connect, as keyword arguments."""
        options = self.brokers[0].client_options(user)
        options["bootstrap_servers"] = self.bootstrap_servers
        return options

    def permit(self, topic: str, group: str) -> None:
        """Let members read this topic and use this group."""
        self.allow(USER, "topic", topic, ["read", "describe"])
        self.allow(USER, "group", group, ["read", "describe"])

    @override
    def start(self) -> None:
        """Start every broker that does not run; returns when all of them know each other."""
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

    @contextlib.asynccontextmanager
    async def network(self, log: Path | None = None) -> AsyncGenerator[list[Proxy]]:
        """Run the proxies, ``[i]`` that of ``brokers[i]``, for one chaos run."""
        async with contextlib.AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(Proxy(port, broker.port, log))
                for port, broker in zip(self.proxy_ports, self.brokers, strict=True)
            ]
            yield proxies

    async def coordinator(self, group: str) -> KafkaBroker:
        """Which broker coordinates this group."""
        async with GroupsClient(ConsumerConfig(bootstrap_servers=self.direct)) as cluster:
            node_id = await cluster.coordinator(group)
        return next(broker for broker in self.brokers if broker.node_id == node_id)

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """What the group has committed, asked by another client."""
        async with GroupsClient(ConsumerConfig(bootstrap_servers=self.direct)) as cluster:
            return await committed_offsets(cluster, group)

    async def restore(self) -> None:
        """Resume and start whatever a fault has left paused or ended."""
        for broker in self.brokers:
            if broker.running:
                broker.resume()
        await asyncio.to_thread(self.start)
