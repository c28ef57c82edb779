"""The properties of a broker."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.broker.listeners.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asyncrevoke.broker.listeners.security import Security

CLIENTS = "CLIENTS"
BROKERS = "BROKERS"
CONTROLLER = "CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """One broker of a cluster, which is a controller too, and its three ports."""

    node_id: int
    clients_port: int
    brokers_port: int
    controller_port: int

    @classmethod
    def choose(cls, ports: Iterator[int], node_id: int = 1) -> BrokerNode:
        """A node whose ports are the next three of ``ports``."""
        return cls(
            node_id=node_id,
            clients_port=next(ports),
            brokers_port=next(ports),
            controller_port=next(ports),
        )


def new_cluster_id() -> str:
    """A random cluster id, as Kafka writes UUIDs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# Kafka's defaults need more disk and time than a test has.
_SMALL: Mapping[str, str] = {
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
    "auto.create.topics.enable": "false",
    # Records of tests may have any timestamp.
    "log.retention.ms": "-1",
}

_QUICK: Mapping[str, str] = {
    # How long a killed broker counts as alive; it cannot register again before.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "100",
}


def broker_properties(
    node: BrokerNode,
    nodes: tuple[BrokerNode, ...],
    *,
    data: str,
    key_store: str,
    security: Security,
    quick: bool,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """All properties of one broker; ``extra`` overrides the others. With ``quick``, the timeouts of
    coordinator and controller are lower than Kafka's defaults."""
    copies = min(3, len(nodes))
    # A coordinator topic with one partition starts fastest; several brokers share the groups.
    coordinators = 1 if len(nodes) == 1 else 3
    ports = {
        CLIENTS: node.clients_port,
        BROKERS: node.brokers_port,
        CONTROLLER: node.controller_port,
    }
    listeners = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()}
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{node.node_id}@{HOST}:{node.controller_port}" for node in nodes
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": BROKERS,
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": f"{listeners[CLIENTS]},{listeners[BROKERS]}",
        "listener.security.protocol.map": (
            f"{CLIENTS}:{security.protocol},{BROKERS}:PLAINTEXT,{CONTROLLER}:PLAINTEXT"
        ),
        "log.dirs": data,
        "default.replication.factor": str(copies),
        "min.insync.replicas": "1",
        "offsets.topic.num.partitions": str(coordinators),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.num.partitions": str(coordinators),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": str(coordinators),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": "1",
        **_SMALL,
    }
    if quick:
        properties |= _QUICK
    return properties | security.properties(CLIENTS, key_store) | dict(extra)


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties as a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(properties.items()))


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "\\" + escaped if escaped.startswith(" ") else escaped
