"""Reads topics with read_committed, as librdkafka does."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

PARTITIONS = 3


def read_committed(broker: RunningBroker, topic: str) -> Counter[bytes]:
    """All values that librdkafka reads, when no transaction is open any more."""
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Counter[bytes] = Counter()
    try:
        reader.assign([ConfluentPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + 30.0
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline
            message = reader.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                number = message.partition()
                assert number is not None
                ended.add(number)
            else:
                value = message.value()
                assert isinstance(value, bytes)
                found[value] += 1
    finally:
        reader.close()
    return found
