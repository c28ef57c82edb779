"""Members with processing="exactly_once" on a real Apache Kafka, judged by librdkafka with
read_committed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from broker.handlers.test_handlers_on_a_real_broker import until
from broker.requests.read_committed import PARTITIONS, read_committed
from confluent_kafka import Producer as ConfluentProducer

from asyncrevoke import Consumer, HandlerContext, Record, RetryTopic
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.errors import ConfigError, IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

PROTOCOLS: list[GroupProtocol] = ["classic", "consumer"]


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.variant)])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker(features={"transaction.version": request.param}) as broker:
        yield broker


class Topics:
    """An input topic with numbered records, and an output topic."""

    def __init__(self, broker: KafkaBroker, name: str, count: int) -> None:
        self.broker = broker
        self.name, self.output = name, f"{name}-out"
        for topic in (name, self.output):
            broker.create_topic(topic, partitions=PARTITIONS)
        self.count = count
        self.write(range(count))

    def write(self, numbers: range) -> None:
        producer = ConfluentProducer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in numbers:
            producer.produce(self.name, b"%d" % number, key=b"k%d" % (number % 50))
        assert producer.flush(30) == 0

    def options(self, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "group_id": self.name,
            "processing": "exactly_once",
            "heartbeat_interval": 0.2,
            **options,
        }

    def results(self) -> Counter[bytes]:
        return read_committed(self.broker, self.output)

    def each_once(self) -> Counter[bytes]:
        return Counter(b"%d" % number for number in range(self.count))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_members_that_join_and_leave_publish_each_result_once(
    broker: KafkaBroker, protocol: GroupProtocol
) -> None:
    topics = Topics(broker, f"members-{protocol}", 3000)
    handled: set[int] = set()
    rng = random.Random(7)

    def has_handled(count: int) -> bool:
        return len(handled) >= count

    def member() -> Consumer:
        consumer = Consumer(**topics.options(group_protocol=protocol, transaction_interval=0.02))

        @consumer.handler(topics.name, publish_to=topics.output)
        async def handle(record: Record) -> bytes | None:
            await asyncio.sleep(rng.random() * 0.004)
            handled.add(int(record.value or b""))
            return record.value

        return consumer

    async with asyncio.TaskGroup() as running:
        members = [member()]
        running.create_task(members[0].run())
        for step in range(1, 5):
            await until(partial(has_handled, 600 * step))
            members.append(member())
            running.create_task(members[-1].run())
            if step > 1:
                members.pop(0).stop()
        await until(lambda: len(handled) == 3000)
        for one in members:
            one.stop()
    assert topics.results() == topics.each_once()


async def test_dead_letters_and_retries_are_in_the_transaction_of_their_record(
    broker: KafkaBroker,
) -> None:
    topics = Topics(broker, "failing", 300)
    broker.create_topic("failing-dead", partitions=PARTITIONS)
    broker.create_topic("failing-retry", partitions=PARTITIONS)
    consumer = Consumer(**topics.options(transaction_interval=0.05))
    ended = 0

    @consumer.handler(
        topics.name,
        publish_to=topics.output,
        retry_topic=RetryTopic("failing-retry", delay=0.1, attempts=1),
        dead_letter="failing-dead",
    )
    async def handle(record: Record, context: HandlerContext) -> bytes | None:
        nonlocal ended
        number = int(record.value or b"")
        await context.publish(topics.output, b"early %d" % number)
        if number % 3 == 0 and context.attempt == 1:
            raise ValueError(number)
        if number % 15 == 0:
            ended += 1
            raise LookupError(number)
        ended += 1
        return record.value

    running = asyncio.create_task(consumer.run())
    await until(lambda: ended == 300 or running.done())
    await until(lambda: consumer.health().in_flight == 0)
    consumer.stop()
    await running
    good = [number for number in range(300) if number % 15]
    dead = [number for number in range(300) if not number % 15]
    assert topics.results() == Counter(
        [b"%d" % number for number in good] + [b"early %d" % number for number in good]
    )
    assert read_committed(broker, "failing-dead") == Counter(b"%d" % number for number in dead)


async def test_a_batch_handler_publishes_in_the_transaction_of_its_batch(
    broker: KafkaBroker,
) -> None:
    topics = Topics(broker, "batches", 500)
    consumer = Consumer(**topics.options())
    seen = 0

    @consumer.handler(
        topics.name, batch=True, max_records=40, max_wait=0.1, publish_to=topics.output
    )
    async def handle(values: list[bytes]) -> list[bytes]:
        nonlocal seen
        seen += len(values)
        return values

    running = asyncio.create_task(consumer.run())
    await until(lambda: seen == 500 or running.done())
    consumer.stop()
    await running
    assert topics.results() == topics.each_once()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_loop_commits_its_batch_with_its_results(
    broker: KafkaBroker, protocol: GroupProtocol
) -> None:
    topics = Topics(broker, f"loop-{protocol}", 1000)
    failures = 0
    left = set(range(1000))
    async with Consumer(topics.name, **topics.options(group_protocol=protocol)) as consumer:
        async for batch in consumer:
            try:
                async with consumer.transaction() as tx:
                    for record in batch.records:
                        tx.publish(topics.output, record.value, key=record.key, record=record)
                    if failures < 2:
                        failures += 1
                        raise LookupError
            except LookupError:
                continue
            left -= {int(record.value or b"") for record in batch.records}
            if not left:
                break
    assert failures == 2
    assert topics.results() == topics.each_once()


async def test_tasks_publish_in_the_transaction_of_their_record(broker: KafkaBroker) -> None:
    topics = Topics(broker, "tasks", 500)
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(Consumer(topics.name, **topics.options()))
        tasks = await stack.enter_async_context(consumer.task_group())

        async def double(record: Record) -> None:
            await asyncio.sleep(0.001)
            await tasks.publish(record, topics.output, record.value)

        submitted = 0
        async for batch in consumer:
            for record in batch.records:
                await tasks.submit(double, record)
                submitted += 1
            if submitted == 500:
                break
    assert topics.results() == topics.each_once()


async def test_what_cannot_be_exactly_once_is_refused_with_a_sentence(broker: KafkaBroker) -> None:
    topics = Topics(broker, "refused", 1)
    consumer = Consumer(**topics.options())
    errors: list[BaseException] = []

    @consumer.handler(topics.name)
    async def handle(_value: bytes) -> None:
        try:
            await consumer.producer.publish(topics.output, b"outside")
        except IllegalStateError as error:
            errors.append(error)
        consumer.stop()

    await consumer.run()
    assert "context.publish()" in str(errors[0])
    assert topics.results() == Counter()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"isolation_level": "read_uncommitted"}, "committed records only"),
        ({"commit_mode": "ack"}, "commits in transactions"),
        ({"commit_interval": 1.0}, "use transaction_interval"),
        ({"group_id": None}, "needs a consumer group"),
        ({"idempotent": False}, "idempotent=True"),
        ({"processing": "at_least_once", "transaction_timeout": 5.0}, "leave it out"),
    ]
    for options, words in refused:
        with pytest.raises(ConfigError, match=words):
            Consumer("t", **topics.options(**options))
