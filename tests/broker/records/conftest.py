"""A topic with numbered records, and consumers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.records.kafka_topic_records import TopicRecords

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> TopicRecords:
    return TopicRecords(kafka_broker.bootstrap_servers, kafka_topic)
