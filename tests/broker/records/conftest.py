"""A topic with numbered records, and consumers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.kafka_release import kafka_release
from broker.records.kafka_topic_records import TopicRecords

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> TopicRecords:
    return TopicRecords(kafka_broker.bootstrap_servers, kafka_topic)


@pytest.fixture(autouse=True)
def groups_by_kip848(request: pytest.FixtureRequest) -> None:
    """Skips tests of KIP-848 where the tests run with Apache Kafka 3."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is None or "consumer" not in callspec.params.values():
        return
    if kafka_release() < (4, 0):
        pytest.skip("needs Apache Kafka 4.0, which has groups of KIP-848")
