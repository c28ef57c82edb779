"""Apache Kafka, the current version and one with ZooKeeper, and Kroxylicious in front of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from broker.servers.starting.jars import jars
from broker.servers.starting.process import (
    HOST,
    CannotStartError,
    cache,
    free_port,
    running,
    until_listening,
)

from asyncrevoke.broker import BrokerMissingError, KafkaBroker
from asyncrevoke.broker.installation.java import find_java

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_JAVA_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_GROUPS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "4",
}
_PROXY = Path(__file__).parent / "kroxylicious" / "Proxy.java"
KROXYLICIOUS = "0.12.0"


def java() -> Path:
    try:
        return find_java().path
    except BrokerMissingError as error:
        raise CannotStartError(str(error)) from error


def _kafka_libs(version: str) -> Path:
    libs = cache() / f"kafka-{version}" / "libs"
    return jars(libs, "org.apache.kafka", "kafka_2.13", version)


@contextlib.asynccontextmanager
async def kafka(folder: Path, version: str = "4.4.0") -> AsyncGenerator[str]:
    """One broker that is its own controller."""
    java()
    broker = KafkaBroker(folder=folder / f"kafka-{version}")
    with patch.dict(os.environ, KAFKA_HOME=str(_kafka_libs(version).parent)), broker:
        yield broker.bootstrap_servers


@contextlib.asynccontextmanager
async def kafka_with_zookeeper(folder: Path, version: str = "2.4.1") -> AsyncGenerator[str]:
    """Two brokers with ZooKeeper: one of them is the controller."""
    path = f"{_kafka_libs(version)}/*"
    keeper_port = free_port()
    command = [str(java()), *_JAVA_OPTIONS, "-cp", path]
    async with contextlib.AsyncExitStack() as stack:
        settings = folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={folder / 'zookeeper'}\nclientPort={keeper_port}\nclientPortAddress={HOST}\n"
            "admin.enableServer=false\n",
            "utf-8",
        )
        log = folder / "zookeeper.log"
        keeper = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        process = await stack.enter_async_context(running([*command, keeper, str(settings)], log))
        await until_listening(process, keeper_port, log)
        ports = [free_port(), free_port()]
        for number, port in enumerate(ports, 1):
            listener = f"PLAINTEXT://{HOST}:{port}"
            properties = {
                "broker.id": str(number),
                "listeners": listener,
                "advertised.listeners": listener,
                "zookeeper.connect": f"{HOST}:{keeper_port}",
                "log.dirs": str(folder / f"broker-{number}"),
                **_GROUPS,
            }
            settings = folder / f"broker-{number}.properties"
            settings.write_text("".join(f"{k}={v}\n" for k, v in properties.items()), "utf-8")
            log = folder / f"broker-{number}.log"
            process = await stack.enter_async_context(
                running([*command, "kafka.Kafka", str(settings)], log)
            )
            await until_listening(process, port, log)
        yield ",".join(f"{HOST}:{port}" for port in ports)


@contextlib.asynccontextmanager
async def kroxylicious(folder: Path, version: str) -> AsyncGenerator[str]:
    """Kroxylicious, which passes on what clients and a broker of this version send."""
    libs = cache() / f"kroxylicious-{KROXYLICIOUS}"
    path = f"{jars(libs, 'io.kroxylicious', 'kroxylicious-runtime', KROXYLICIOUS)}/*"
    if not java().with_name("javac").exists():
        raise CannotStartError("a JDK is not installed: only a Java without a compiler")
    async with kafka(folder, version) as bootstrap:
        port = free_port()
        settings = folder / "proxy.yaml"
        settings.write_text(
            "virtualClusters:\n"
            "- name: proxied\n"
            f"  targetCluster: {{bootstrapServers: '{bootstrap}'}}\n"
            "  gateways:\n"
            "  - name: default\n"
            "    portIdentifiesNode:\n"
            f"      bootstrapAddress: {HOST}:{port}\n"
            f"      nodeIdRanges: [{{name: brokers, start: 0, end: 3}}]\n",
            "utf-8",
        )
        command = [str(java()), *_JAVA_OPTIONS, "-cp", path, str(_PROXY), str(settings)]
        log = folder / "proxy.log"
        async with running(command, log) as process:
            await until_listening(process, port, log)
            yield f"{HOST}:{port}"
