"""What every program has: a server, and topics and records that confluent-kafka makes."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 4
RECORDS = 200
KEYS = 20
# A capability takes at most so many seconds.
DEADLINE = 60.0
# The default of aiokafka, for all: librdkafka's mock cluster takes so long for a rebalance.
SESSION_TIMEOUT = 10.0


class World:
    """One server, for one program. ``creates``: whether it creates topics for a CreateTopics
    request; librdkafka's mock cluster does when their metadata are requested, and only then."""

    def __init__(self, bootstrap: str, *, creates: bool) -> None:
        self.bootstrap = bootstrap
        self._creates = creates
        self.name = uuid.uuid4().hex[:10]
        self.group = f"g-{self.name}"

    def topic(self, label: str = "t", *, partitions: int = PARTITIONS, records: int = 0) -> str:
        """A new topic, with records whose values are 0, 1, 2, ..."""
        name = f"{label}-{self.name}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if self._creates:
            admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=20)[name].result()
        else:
            self._producer().list_topics(name, timeout=20)
        self._wait_for_leaders(admin, name)
        self.produce(name, range(records), partition=-1 if partitions > 1 else 0)
        return name

    @staticmethod
    def _wait_for_leaders(admin: Any, name: str) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = admin.list_topics(name, timeout=20).topics[name]
            leaders = [partition.leader for partition in found.partitions.values()]
            if found.error is None and leaders and min(leaders) >= 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"topic {name} has no leaders")

    def _producer(self) -> Any:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})

    def produce(
        self, topic: str, values: range, *, timestamp: int = 0, partition: int = -1
    ) -> None:
        """Records with the number as value, keys in turn; partitions by key, or this one."""
        producer = self._producer()
        for number in values:
            key = b"%d" % (number % KEYS)
            value = b"%d" % number
            producer.produce(topic, value, key, partition, timestamp=timestamp)
        assert producer.flush(20) == 0, "the records were not produced"

    def values(self, topic: str, count: int) -> list[int]:
        """The values in a topic, read by confluent-kafka, when there are ``count`` or more."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{self.name}",
                "auto.offset.reset": "earliest",
            }
        )
        found = reader.list_topics(topic, timeout=20).topics[topic]
        reader.assign([TopicPartition(topic, number, 0) for number in found.partitions])
        read: list[int] = []
        deadline = time.monotonic() + DEADLINE / 2
        while len(read) < count and time.monotonic() < deadline:
            read += [
                int(each.value() or b"") for each in reader.consume(100, 0.3) if not each.error()
            ]
        reader.close()
        return read


def expect_all(values: list[int], wanted: range) -> None:
    """Each value was read, and once."""
    missing = set(wanted) - set(values)
    repeated = len(values) - len(set(values))
    assert not missing, f"{len(missing)} of {len(wanted)} records were not read"
    assert not repeated, f"{repeated} records were read twice"
