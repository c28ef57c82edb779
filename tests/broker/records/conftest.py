"""A topic with numbered records, and consumers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.records.kafka_topic_records import Kafka

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> Kafka:
    return Kafka(kafka_broker.bootstrap_servers, kafka_topic)
