"""Several handlers of one topic on a real Apache Kafka: each record goes to exactly one."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from broker.handlers.test_handlers_on_a_real_broker import HandlerTopic, until

from asyncrevoke import Consumer, Record, Router, TopicPartition, UnmatchedRecordError, by_header

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

KINDS = ("created", "paid", "deleted", "unknown")


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


def kind_of(number: int) -> str:
    return KINDS[number // 9 % 4]  # each key has all of them


async def produce(kafka: HandlerTopic, numbers: range, partitions: int = 1) -> None:
    """Write numbered records of all kinds: those of a key are in one partition."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.address) as producer:
        for number in numbers:
            kind = kind_of(number)
            await producer.send(
                kafka.topic,
                None if kind == "deleted" else b"{}",
                key=b"k%d" % (number % 9),
                partition=number % 9 % partitions,
                headers=[("number", b"%d" % number), ("kind", kind.encode())],
            )
        await producer.flush()


class Handled:
    """The handlers of one topic, and which of them got which record."""

    def __init__(self, topic: str, **options: Any) -> None:
        self.by_handler: dict[str, list[int]] = defaultdict(list)
        self.by_key: dict[bytes | None, list[int]] = defaultdict(list)
        self.router = Router()
        created, paid = by_header("kind", "created"), by_header("kind", "paid")
        self.router.handler(topic, where=created, **options)(self.created)
        self.router.handler(topic, where=paid)(self.paid)
        self.router.handler(topic, where=lambda record: record.value is None)(self.deleted)

    async def created(self, value: dict[str, int], record: Record) -> None:
        self._write_down("created", record)

    async def paid(self, value: bytes, record: Record) -> None:
        self._write_down("paid", record)

    async def deleted(self, record: Record) -> None:
        self._write_down("deleted", record)

    async def others(self, value: bytes, record: Record) -> None:
        self._write_down("unknown", record)

    def _write_down(self, handler: str, record: Record) -> None:
        number = int(dict(record.headers)["number"] or b"")
        self.by_handler[handler].append(number)
        self.by_key[record.key].append(number)

    def count(self) -> int:
        return sum(map(len, self.by_handler.values()))

    def consumer(self, kafka: HandlerTopic) -> Consumer:
        consumer = Consumer(**kafka.options())
        consumer.include_router(self.router)
        return consumer


@pytest.mark.kafka_topic(partitions=3)
async def test_each_record_goes_to_its_handler_while_a_member_joins_and_leaves(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead)
    handled = Handled(kafka.topic, unmatched="dead_letter", dead_letter=kafka.dead)
    unmatched = [number for number in range(3000) if kind_of(number) == "unknown"]
    await produce(kafka, range(1000), 3)
    async with handled.consumer(kafka) as first:
        await until(lambda: handled.count() > 100)
        async with handled.consumer(kafka) as second:
            await until(second.assignment)
            await produce(kafka, range(1000, 2000), 3)
            await until(lambda: handled.count() > 1000)
        await produce(kafka, range(2000, 3000), 3)
        await until(lambda: handled.count() >= 3000 - len(unmatched))
        letters = await kafka.dead_letters(len(unmatched))
        await until(lambda: first.health().in_flight == 0)
    for kind in KINDS[:3]:
        expected = [number for number in range(3000) if kind_of(number) == kind]
        assert sorted(handled.by_handler[kind]) == expected
    assert handled.by_handler["unknown"] == []
    assert all(numbers == sorted(numbers) for numbers in handled.by_key.values())
    assert sorted(int(dict(letter.headers)["number"] or b"") for letter in letters) == unmatched
    assert {dict(letter.headers)["asyncrevoke-error-type"] for letter in letters} == {
        b"asyncrevoke.errors.UnmatchedRecordError"
    }
    assert await kafka.committed() == 3000


@pytest.mark.kafka_topic(partitions=1)
async def test_the_consumer_stops_before_a_record_that_no_handler_takes(
    kafka: HandlerTopic,
) -> None:
    await produce(kafka, range(50))
    first_unmatched = next(number for number in range(50) if kind_of(number) == "unknown")
    handled = Handled(kafka.topic)
    with pytest.raises(UnmatchedRecordError) as raised:
        await handled.consumer(kafka).run()
    partition = TopicPartition(kafka.topic, 0)
    assert str(partition) in str(raised.value)
    assert await kafka.committed() <= first_unmatched
    handled.router.handler(kafka.topic)(handled.others)
    async with handled.consumer(kafka):
        await until(lambda: handled.count() == 50)
    assert await kafka.committed() == 50
    assert sorted(chain(*handled.by_handler.values())) == list(range(50))
