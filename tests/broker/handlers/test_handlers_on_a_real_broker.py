"""Handlers as users have them, against a real Apache Kafka: retries, dead letters, pauses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import BatchError, Consumer, HandlerContext, Record, Retry, TopicPartition
from asyncrevoke.broker.admin import Admin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Unpack

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import ConsumerOptions

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

DEADLINE = 60.0
SOON = Retry(attempts=3, backoff=0.05)


class HandlerTopic:
    """The broker of the session, and a topic with its dead letter topic."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self._broker = broker
        self.address = broker.bootstrap_servers
        self.topic = topic
        self.dead = f"{topic}.dlq"

    def options(self, **options: Unpack[ConsumerOptions]) -> ConsumerOptions:
        return {"bootstrap_servers": self.address, "group_id": self.topic, **options}

    async def create(
        self, topic: str, partitions: int = 1, settings: dict[str, str] | None = None
    ) -> None:
        await asyncio.to_thread(self._broker.create_topic, topic, partitions, None, settings)

    async def delete(self, topic: str) -> None:
        """Delete a topic; returns when it can be created again."""
        await asyncio.to_thread(self._broker.delete_topic, topic)
        admin = Admin(self._broker.admin_addresses[0])
        await until(lambda: admin.partitions(topic) == 0)

    async def produce(self, count: int, partitions: int = 1, size: int = 0) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.address) as producer:
            for number in range(count):
                await producer.send(
                    self.topic,
                    b"%d" % number + b" " * size,
                    key=b"k%d" % (number % 7),
                    partition=number % partitions,
                    timestamp_ms=1_700_000_000_000 + number,
                    headers=[("number", b"%d" % number)],
                )
            await producer.flush()

    async def committed(self) -> int:
        looker = Consumer(**self.options())
        async with looker:
            numbers = await looker.partitions_for_topic(self.topic)
            found = await looker.committed(*(TopicPartition(self.topic, n) for n in numbers))
        return sum(offset.offset for offset in found.values() if offset is not None)

    async def dead_letters(self, count: int) -> list[Record]:
        letters: list[Record] = []
        async with (
            asyncio.timeout(DEADLINE),
            Consumer(self.dead, bootstrap_servers=self.address) as reader,
        ):
            while len(letters) < count:
                letters.extend((await anext(reader)).records)
            letters.extend((await reader.poll(timeout=0.5)).records)
        return letters


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition has not come true in time"
        await asyncio.sleep(0.01)


async def test_a_failed_record_is_retried_and_then_dead_lettered(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead, 2)
    await kafka.produce(40)
    consumer = Consumer(**kafka.options())
    calls: list[tuple[int, int]] = []
    done: Counter[int] = Counter()

    @consumer.handler(kafka.topic, retry=SOON, dead_letter=kafka.dead)
    async def handle(value: bytes, context: HandlerContext) -> None:
        number = int(value)
        calls.append((number, context.attempt))
        if number % 10 == 0 or (number % 10 == 7 and context.attempt == 1):
            raise ValueError(f"no {number}")
        done[number] += 1

    async with consumer:
        await until(lambda: len(done) == 36 and Counter(n for n, _ in calls)[30] == 3)
        consumer.stop()
    assert set(done.values()) == {1}
    assert await kafka.committed() == 40
    assert [attempt for number, attempt in calls if number == 20] == [1, 2, 3]
    assert [attempt for number, attempt in calls if number == 17] == [1, 2]
    letters = sorted(
        await kafka.dead_letters(4), key=lambda dead_letter: int(dead_letter.value or b"")
    )
    assert [each.value for each in letters] == [b"0", b"10", b"20", b"30"]
    letter = letters[2]
    assert letter.key == b"k6"
    assert abs(letter.timestamp / 1000 - time.time()) < 60
    assert letter.headers == (
        ("number", b"20"),
        ("asyncrevoke-origin-topic", kafka.topic.encode()),
        ("asyncrevoke-origin-partition", b"0"),
        ("asyncrevoke-origin-offset", b"20"),
        ("asyncrevoke-origin-timestamp", b"1700000000020"),
        ("asyncrevoke-error-type", b"ValueError"),
        ("asyncrevoke-error-message", b"no 20"),
        ("asyncrevoke-attempts", b"3"),
    )


async def test_undecodable_values_and_tombstones_go_to_the_dead_letter_topic(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead)
    async with AIOKafkaProducer(bootstrap_servers=kafka.address) as producer:
        await producer.send_and_wait(kafka.topic, b"no number", key=b"a", partition=0)
        await producer.send_and_wait(kafka.topic, None, key=b"b", partition=0)
        batch = producer.create_batch()  # neither key nor value: send() rejects that
        batch.append(timestamp=None, key=None, value=None)
        await (await producer.send_batch(batch, kafka.topic, partition=0))
        await producer.send_and_wait(kafka.topic, b"7", partition=0)
    consumer = Consumer(**kafka.options())
    numbers: list[int] = []

    @consumer.handler(kafka.topic, retry=Retry(attempts=None), dead_letter=kafka.dead)
    async def handle(value: int) -> None:
        numbers.append(value)

    async with consumer:
        letters = await kafka.dead_letters(3)
        await until(lambda: numbers == [7])
        consumer.stop()
    assert {(letter.key, letter.value) for letter in letters} == {
        (b"a", b"no number"),
        (b"b", None),
        (None, None),
    }
    assert await kafka.committed() == 4


async def test_a_dead_letter_that_the_broker_rejects_pauses_its_partition_and_drops_nothing(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead, settings={"max.message.bytes": "100"})
    await kafka.produce(10, size=500)
    consumer = Consumer(**kafka.options())

    @consumer.handler(kafka.topic, dead_letter=kafka.dead)
    async def handle(value: bytes) -> None:
        if int(value) == 4:
            raise ValueError("boom")

    async with consumer:
        await until(lambda: consumer.health().unwritten)
        consumer.stop()
    assert await kafka.committed() == 4


async def test_a_failure_pauses_its_partition_until_it_is_resumed(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    kafka = HandlerTopic(kafka_broker, f"{kafka_topic}.two")
    await kafka.create(kafka.topic, 2)
    await kafka.produce(20, partitions=2)
    consumer = Consumer(**kafka.options())
    works = False
    handled: Counter[int] = Counter()

    @consumer.handler(kafka.topic, on_error="pause")
    async def handle(value: bytes) -> None:
        number = int(value)
        if number == 6 and not works:
            raise ValueError("not yet")
        handled[number] += 1

    async with consumer:
        await until(lambda: consumer.health().paused_partitions)
        assert consumer.health().paused_partitions == {TopicPartition(kafka.topic, 0)}
        await until(lambda: all(handled[number] for number in range(1, 20, 2)))
        assert not handled[6]
        works = True
        consumer.resume(TopicPartition(kafka.topic, 0))
        await until(lambda: all(handled[number] for number in range(20)))
        consumer.stop()
    assert await kafka.committed() == 20
    assert all(handled[number] == 1 for number in range(1, 20, 2))


async def test_resources_are_open_while_handlers_run(kafka: HandlerTopic) -> None:
    await kafka.produce(5)
    log: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncGenerator[list[str]]:
        log.append("open")
        yield log
        log.append("closed")

    consumer = Consumer(**kafka.options(), resources=database())

    @consumer.handler(kafka.topic)
    async def handle(value: bytes, context: HandlerContext[list[str]]) -> None:
        context.state.append("handled")
        if context.record.offset == 4:
            consumer.stop()

    async with asyncio.timeout(DEADLINE):
        await consumer.run()
    assert log == ["open", *["handled"] * 5, "closed"]
    assert await kafka.committed() == 5


async def test_a_resource_that_does_not_open_ends_the_run(kafka: HandlerTopic) -> None:
    @asynccontextmanager
    async def database() -> AsyncGenerator[None]:
        raise ConnectionError("no database")
        yield

    consumer = Consumer(**kafka.options(), resources=database())

    @consumer.handler(kafka.topic)
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConnectionError, match="no database"):
        async with asyncio.timeout(DEADLINE):
            await consumer.run()


async def test_batches_are_of_one_partition_in_order_and_failed_values_are_tried_again(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    kafka = HandlerTopic(kafka_broker, f"{kafka_topic}.two")
    await kafka.create(kafka.topic, 2)
    await kafka.produce(100, partitions=2)
    consumer = Consumer(**kafka.options())
    done: list[int] = []
    again: list[list[int]] = []

    @consumer.handler(kafka.topic, batch=True, max_records=20, max_wait=0.1, retry=SOON)
    async def store(numbers: list[int], records: list[Record], context: HandlerContext) -> None:
        assert len({record.partition for record in records}) == 1
        assert [record.offset for record in records] == sorted(record.offset for record in records)
        assert len(numbers) <= 20
        if context.attempt > 1:
            again.append(numbers)
        failed = {
            index: ValueError(f"no {number}")
            for index, number in enumerate(numbers)
            if number % 25 == 0 and context.attempt == 1
        }
        done.extend(number for index, number in enumerate(numbers) if index not in failed)
        if failed:
            raise BatchError(failed)

    async with consumer:
        await until(lambda: len(done) == 100)
        consumer.stop()
    assert sorted(done) == list(range(100))
    assert sorted(number for numbers in again for number in numbers) == [0, 25, 50, 75]
    for parity in (0, 1):
        first_time = [n for n in done if n % 2 == parity and n % 25]
        assert first_time == sorted(first_time)
    assert await kafka.committed() == 100


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again(
    kafka: HandlerTopic,
) -> None:
    await kafka.produce(3)
    consumer = Consumer(**kafka.options())
    attempts: list[int] = []

    @consumer.handler(kafka.topic, max_handler_time=0.2, retry=SOON)
    async def handle(value: bytes, context: HandlerContext) -> None:
        if context.record.offset == 1:
            attempts.append(context.attempt)
            if context.attempt == 1:
                await asyncio.Event().wait()

    async with consumer:
        await until(lambda: attempts == [1, 2])
    assert await kafka.committed() == 3


async def test_a_record_that_waits_for_its_retry_does_not_delay_closing(
    kafka: HandlerTopic,
) -> None:
    await kafka.produce(14)
    consumer = Consumer(**kafka.options())
    calls: Counter[int] = Counter()

    @consumer.handler(kafka.topic, retry=Retry(attempts=None, backoff=30))
    async def handle(value: bytes) -> None:
        calls[int(value)] += 1
        if int(value) == 3:
            raise ValueError("not yet")

    begin = time.monotonic()
    async with consumer:
        await until(lambda: len(calls) == 13)  # 10 has the key of 3, and waits behind it
    assert time.monotonic() - begin < 15
    assert await kafka.committed() == 3
