"""The servers of the run, pinned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import confluent_kafka
from broker.servers.starting import apache, doubles, tansu


class ServerKind(NamedTuple):
    """``start`` gets a folder, and its context has the bootstrap servers. It raises
    CannotStartError if something is missing."""

    version: str
    start: Callable[[Path], AbstractAsyncContextManager[str]]
    creates_topics: Literal["yes", "no"] = "yes"
    alone: frozenset[str] = frozenset()
    """Capabilities whose requests may end the server: it is started anew for each program."""


SERVERS: dict[str, ServerKind] = {
    "Apache Kafka": ServerKind("4.4.0", apache.kafka),
    "Apache Kafka with ZooKeeper": ServerKind("2.4.1", apache.kafka_with_zookeeper),
    "Kroxylicious, Kafka 4.4.0": ServerKind(
        apache.KROXYLICIOUS, partial(apache.kroxylicious, version="4.4.0")
    ),
    "Kroxylicious, Kafka 3.9.1": ServerKind(
        apache.KROXYLICIOUS, partial(apache.kroxylicious, version="3.9.1")
    ),
    "kfake": ServerKind(doubles.kfake_version(), doubles.kfake),
    "Tansu": ServerKind(tansu.VERSION, tansu.tansu),
    "librdkafka's mock cluster": ServerKind(
        confluent_kafka.libversion()[0],
        doubles.mock_cluster,
        creates_topics="no",
        alone=frozenset({"kip848", "auto"}),
    ),
}
