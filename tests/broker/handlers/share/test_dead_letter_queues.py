"""Dead letters of handlers beside the dead letter queue that a broker has for a share group
(KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.handlers.share.share_topics import left, member, queue, until
from broker.kafka_release import kafka_release

from asyncrevoke import Consumer, TopicPartition
from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.variant,
    pytest.mark.skipif(kafka_release() < (4, 4), reason="needs Apache Kafka 4.4"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(features={"share.version": 2}) as broker:
        yield broker


async def letters_in(broker: KafkaBroker, topic: str) -> int:
    """How many records a topic has."""
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        return (await reader.end_offsets(place))[place]


@pytest.mark.parametrize(("brokers_topic", "letters"), [("dlq.orders", 3), ("orders.letters", 0)])
async def test_a_record_with_a_dead_letter_is_rejected_whatever_the_broker_writes(
    broker: KafkaBroker, brokers_topic: str, letters: int
) -> None:
    topic, ours = f"of-{brokers_topic}", f"ours-{brokers_topic}"
    broker.create_topic(ours, 1)
    broker.create_topic(brokers_topic, 1, None, {"errors.deadletterqueue.group.enable": "true"})
    await queue(broker, topic, 3, options={"errors.deadletterqueue.topic.name": brokers_topic})
    consumer = member(broker, topic)
    failed: list[bytes] = []

    @consumer.handler(topic, dead_letter=ours)
    async def fail(value: bytes) -> None:
        failed.append(value)
        raise ValueError(value)

    async with consumer:
        await until(lambda: len(failed) == 3)
        await until(lambda: consumer.health().in_flight == 0)
    assert await left(broker, topic) == []
    assert await letters_in(broker, ours) == 3
    assert await letters_in(broker, brokers_topic) == letters
