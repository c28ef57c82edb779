"""pytest fixtures with a real Apache Kafka, loaded by an entry point.

The plugin imports this library when a fixture is first used, so that it does not slow down other
test runs.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.broker import KafkaCluster, RunningBroker
    from asyncrevoke.consumer import Consumer
    from asyncrevoke.testing.broker_consumer import BrokerConsumer

TOPIC_PARTITIONS = 4


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=4, config={}): options of the topic of the fixture kafka_topic",
    )


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[RunningBroker]:
    """A real Apache Kafka for the whole session. If it cannot start, each test that uses it fails
    with the reason.

    The environment variable ``ASYNCREVOKE_BROKER`` selects it: ``jvm`` (the default), ``docker``,
    or ``HOST:PORT`` of a running broker.
    """
    from asyncrevoke.broker import start_broker

    broker = start_broker()
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def kafka_topic(kafka_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with 4 partitions.

    ``@pytest.mark.kafka_topic(partitions=12)``, or indirect parametrization with a number, sets
    another number of partitions.
    """
    marker = cast("pytest.Mark | None", request.node.get_closest_marker("kafka_topic"))
    options: dict[str, object] = {} if marker is None else dict(marker.kwargs)
    partitions = cast("int", getattr(request, "param", options.get("partitions", TOPIC_PARTITIONS)))
    config = cast("dict[str, str]", options.get("config", {}))
    stem = re.sub(r"[^a-zA-Z0-9._-]", "-", request.function.__name__)[:100]
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, partitions, config=config)
    return name


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """A cluster of three real brokers for the whole session.

    A test that stops a broker must start it again: ``kafka_cluster.start()``.
    """
    from asyncrevoke.broker import KafkaCluster

    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def consumer_for(kafka_broker: RunningBroker) -> Callable[[Consumer], BrokerConsumer]:
    """Enters a consumer of an application on ``kafka_broker``, in a new group.

    ``async with consumer_for(consumer) as running: ...``
    """
    from asyncrevoke.testing.broker_consumer import BrokerConsumer

    def enter(consumer: Consumer) -> BrokerConsumer:
        return BrokerConsumer(consumer, kafka_broker)

    return enter
