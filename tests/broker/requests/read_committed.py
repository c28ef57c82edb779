"""Reads topics with read_committed, as librdkafka does."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, cast

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import LatestSpec, ListOffsetsResultInfo, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from asyncrevoke.broker import RunningBroker

PARTITIONS = 3
TIMEOUT = 30.0


def read_committed(broker: RunningBroker, topic: str) -> Counter[bytes]:
    """All values of a topic whose transactions have ended: waits until brokers have written the
    markers of these, which they do after the response to EndTxn."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deadline = time.monotonic() + TIMEOUT
    while not _have_ended(admin, topic):
        assert time.monotonic() < deadline, f"a transaction of {topic} is open"
        time.sleep(0.02)
    return read_below_stable_offsets(broker, topic)


def _have_ended(admin: AdminClient, topic: str) -> bool:
    stable = _ends(admin, topic, IsolationLevel.READ_COMMITTED)
    return stable == _ends(admin, topic, IsolationLevel.READ_UNCOMMITTED)


def _ends(admin: AdminClient, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    latest = cast("Callable[[], OffsetSpec]", LatestSpec)()
    asked = {ConfluentPartition(topic, number): latest for number in range(PARTITIONS)}
    found = cast(
        "dict[ConfluentPartition, Future[ListOffsetsResultInfo]]",
        admin.list_offsets(asked, isolation_level=isolation),
    )
    return {tp.partition: future.result(TIMEOUT).offset for tp, future in found.items()}


def read_below_stable_offsets(broker: RunningBroker, topic: str) -> Counter[bytes]:
    """The values that a read_committed consumer sees at present."""
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
        deadline = time.monotonic() + TIMEOUT
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
