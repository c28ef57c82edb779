"""pytest fixtures with a real Apache Kafka; loaded by an entry point.

Nothing of this library is imported before a fixture is used, so that installing it costs other
test runs nothing.
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
        "kafka_topic(partitions=4, config={}): how the topic of the fixture kafka_topic is made",
    )


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[RunningBroker]:
    """A real Apache Kafka for the whole session; the test fails with the reason if there is none.

    The environment variable ``ASYNCREVOKE_BROKER`` chooses it: ``jvm`` (the default), ``docker``,
    or ``HOST:PORT`` of one that runs.
    """
    from asyncrevoke.broker import start_broker

    broker = start_broker()
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def kafka_topic(kafka_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """The name of a fresh topic with 4 partitions.

    Another number by ``@pytest.mark.kafka_topic(partitions=12)``, or by indirect parametrization
    with the number.
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
    """Three real brokers for the whole session.

    A test that stops one of them starts it again before it ends: ``kafka_cluster.start()``.
    """
    from asyncrevoke.broker import KafkaCluster

    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def consumer_for(kafka_broker: RunningBroker) -> Callable[[Consumer], BrokerConsumer]:
    """Enters a consumer of an application, which handles records of ``kafka_broker``.

    ``async with consumer_for(consumer) as running:``, in a group of its own.
    """
    from asyncrevoke.testing.broker_consumer import BrokerConsumer

    def enter(consumer: Consumer) -> BrokerConsumer:
        return BrokerConsumer(consumer, kafka_broker)

    return enter
