"""The consumer as users have it, against a real Apache Kafka."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import (
    Consumer,
    IllegalStateError,
    InconsistentGroupError,
    NoOffsetError,
    OffsetAndMetadata,
    PartitionLostError,
    RebalanceListener,
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Unpack

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.config import ConsumerOptions, OffsetReset

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

DEADLINE = 60.0


class Kafka:
    """The broker of the session, one topic, and a group of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.sent = 0

    def consumer(self, *topics: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        options.setdefault("group_id", self.group)
        options.setdefault("bootstrap_servers", self.bootstrap)
        return Consumer(*(topics or (self.topic,)), **options)

    @asynccontextmanager
    async def producing(self) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:

            async def produce(count: int) -> None:
                for number in range(self.sent, self.sent + count):
                    key = b"key-%d" % (number % 17)
                    await producer.send(self.topic, b"%d" % number, key=key)
                self.sent += count
                await producer.flush()

            yield produce

    async def produce(self, count: int) -> None:
        async with self.producing() as produce:
            await produce(count)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def committed(self) -> int:
        """Records that the group has committed, over all partitions."""
        async with self.consumer(group_id=None) as reader:
            partitions = await reader.partitions_for_topic(self.topic)
        looker = Consumer(bootstrap_servers=self.bootstrap, group_id=self.group)
        async with looker:
            found = await looker.committed(*(self.partition(number) for number in partitions))
        return sum(offset.offset for offset in found.values() if offset is not None)


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> Kafka:
    return Kafka(kafka_broker.bootstrap_servers, kafka_topic)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    """The values of the next ``count`` records; the last batch does not count yet."""
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(values) < count:
            values.extend(record.value or b"" for record in (await anext(consumer)).records)
    return values


async def rest(consumer: Consumer) -> list[bytes]:
    """What comes until nothing has come for a second."""
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while not consumer.assignment() or None in map(consumer.position, consumer.assignment()):
            values.extend(record.value or b"" for record in (await consumer.poll(0.2)).records)
        while batch := (await consumer.poll(1)).records:
            values.extend(record.value or b"" for record in batch)
    return values


def numbers(count: int, start: int = 0) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(start, start + count))


# -- one member


async def test_a_member_reads_everything_and_its_successor_goes_on_where_it_stopped(
    kafka: Kafka,
) -> None:
    await kafka.produce(100)
    seen: list[bytes] = []
    async with kafka.consumer() as consumer:
        async for batch in consumer:
            seen.extend(record.value or b"" for record in batch.records)
            if len(seen) >= 100:
                consumer.stop()
    assert Counter(seen) == numbers(100)
    assert await kafka.committed() == 100
    await kafka.produce(10)
    async with kafka.consumer() as consumer:
        assert Counter(await read(consumer, 10)) == numbers(10, 100)


async def test_a_break_does_not_count_the_last_batch(kafka: Kafka) -> None:
    await kafka.produce(50)
    async with kafka.consumer() as consumer:
        assert Counter(await read(consumer, 50)) == numbers(50)
    async with kafka.consumer() as consumer:
        again = await read(consumer, 1)
        again += await rest(consumer)
    assert set(again) <= set(numbers(50))
    assert again


async def test_an_exception_does_not_count_the_last_batch_and_leaves_the_group(
    kafka: Kafka,
) -> None:
    await kafka.produce(10)
    with pytest.raises(ZeroDivisionError):
        async with kafka.consumer(max_poll_records=10) as consumer:
            await read(consumer, 10)
            raise ZeroDivisionError
    async with asyncio.timeout(5), kafka.consumer() as consumer:
        # The first member has left, so this one does not wait for its session.
        assert await read(consumer, 1)


async def test_commit_counts_what_the_next_step_has_counted(kafka: Kafka) -> None:
    await kafka.produce(20)
    async with kafka.consumer(commit_interval=60) as consumer:
        await read(consumer, 20)
        await consumer.poll(timeout=0)
        await consumer.commit()
        found = await consumer.committed()
        assert sum(offset.offset for offset in found.values() if offset) == 20


async def test_cancelling_a_waiting_step_loses_no_record(kafka: Kafka) -> None:
    seen: list[bytes] = []
    timeouts = 0
    async with kafka.consumer() as consumer, kafka.producing() as produce:

        async def trickle() -> None:
            for _ in range(40):
                await produce(5)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(DEADLINE):
            while len(seen) < 200:
                try:
                    async with asyncio.timeout(0.005):
                        batch = await anext(consumer)
                except TimeoutError:
                    timeouts += 1
                    continue
                seen.extend(record.value or b"" for record in batch.records)
        await trickling
    assert Counter(seen) == numbers(200)
    assert timeouts > 0


async def test_single_records_count_one_by_one(kafka: Kafka) -> None:
    await kafka.produce(30)
    seen: list[bytes] = []
    async with kafka.consumer() as consumer:
        async for record in consumer.records():
            seen.append(record.value or b"")
            if len(seen) == 11:
                break  # the eleventh is not done
    assert await kafka.committed() == 10
    async with kafka.consumer() as consumer:
        async for record in consumer.records():
            seen.append(record.value or b"")
            if len(seen) == 15:
                break
        # Whole batches from here on: nothing is left out.
        seen += await read(consumer, 1) + await rest(consumer)
    assert Counter(seen) == numbers(30) + Counter([seen[10]])


async def test_records_of_one_partition_come_in_order_without_gaps(kafka: Kafka) -> None:
    await kafka.produce(1000)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    async with kafka.consumer(max_poll_records=37) as consumer, asyncio.timeout(DEADLINE):
        async for batch in consumer:
            assert len(batch.records) <= 37
            for record in batch.records:
                offsets[record.partition].append(record.offset)
            if sum(map(len, offsets.values())) == 1000:
                break
    assert all(found == list(range(len(found))) for found in offsets.values())


# -- commit modes


async def test_acked_records_are_committed_as_far_as_they_are_contiguous(kafka: Kafka) -> None:
    await kafka.produce(40)
    async with kafka.consumer(commit_mode="ack") as consumer:
        records: list[Record] = []
        async with asyncio.timeout(DEADLINE):
            while len(records) < 40:
                records.extend((await anext(consumer)).records)
        for record in reversed(records):
            if record.offset != 1:
                assert consumer.ack(record)
                assert consumer.ack(record)  # twice does no harm
    partitions = {record.partition for record in records if record.offset == 1}
    done = Counter(record.partition for record in records)
    expected = sum(1 if partition in partitions else done[partition] for partition in done)
    assert await kafka.committed() == expected


async def test_by_hand_only_what_is_committed_counts_and_it_may_rewind(kafka: Kafka) -> None:
    await kafka.produce(40)
    async with kafka.consumer(commit_mode="manual") as consumer:
        await read(consumer, 40)
        await consumer.commit()
        assert await kafka.committed() == 40
        tp, position = next(
            (tp, end) for tp in consumer.assignment() if (end := consumer.position(tp) or 0) > 2
        )
        await consumer.commit({tp: 1})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(1, "", -1)
        await consumer.commit({tp: OffsetAndMetadata(2, "a note")})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(2, "a note", -1)
        with pytest.raises(PartitionLostError):
            await consumer.commit({TopicPartition(kafka.topic, 99): 1})
    assert await kafka.committed() == 40 - position + 2


# -- members that come and go


async def test_a_second_member_gets_its_share_and_nothing_is_read_twice(kafka: Kafka) -> None:
    seen: list[tuple[int, bytes]] = []
    revoked: list[TopicPartition] = []
    lost: list[TopicPartition] = []
    first, second = kafka.consumer(), kafka.consumer()

    async def loop(number: int, consumer: Consumer) -> None:
        async with consumer:
            async for records, to_be_revoked, gone in consumer:
                seen.extend((number, record.value or b"") for record in records)
                revoked.extend(to_be_revoked)
                lost.extend(gone)

    async with kafka.producing() as produce, asyncio.timeout(DEADLINE):
        await produce(100)
        one = asyncio.create_task(loop(1, first))
        await _until(lambda: len(seen) == 100)
        two = asyncio.create_task(loop(2, second))
        while {number for number, _ in seen} != {1, 2}:
            await produce(4)
            await asyncio.sleep(0.01)
        assert len(first.assignment()) == len(second.assignment()) == 2
        assert not first.assignment() & second.assignment()
        second.stop()
        await two
        await _has(first, 4)
        await produce(100)
        await _until(lambda: len(seen) == kafka.sent)
        first.stop()
        await one
    assert Counter(value for _, value in seen) == numbers(kafka.sent)
    assert len(set(revoked)) == 2
    assert lost == []
    assert await kafka.committed() == kafka.sent


async def test_kept_partitions_flow_while_a_revoke_is_delayed(kafka: Kafka) -> None:
    delayed: set[TopicPartition] = set()
    flowed: Counter[TopicPartition] = Counter()
    enough, answers = asyncio.Event(), set[bool]()
    first, second = kafka.consumer(), kafka.consumer()

    async def loop(consumer: Consumer) -> None:
        async with consumer:
            async for records, to_be_revoked, _ in consumer:
                if to_be_revoked and not enough.is_set():
                    delayed.update(to_be_revoked)
                    answers.add(consumer.delay_revoke(to_be_revoked))
                if delayed and consumer is first:
                    flowed.update(record.topic_partition for record in records)

    async with asyncio.timeout(DEADLINE), kafka.producing() as produce:
        loops = [asyncio.create_task(loop(first))]
        await _has(first, 4)
        loops.append(asyncio.create_task(loop(second)))
        while not delayed or sum(flowed.values()) < 50:
            await produce(10)
            await asyncio.sleep(0.01)
        assert len(first.assignment()) == 4
        assert not delayed & set(flowed)
        enough.set()
        await _has(second, 2)
        assert second.assignment() == delayed
        first.stop()
        second.stop()
        await asyncio.gather(*loops)
    assert answers == {True}


async def test_an_eager_group_gives_everything_up_and_loses_nothing(kafka: Kafka) -> None:
    seen: Counter[bytes] = Counter()
    first = kafka.consumer(assignors=("range",))
    second = kafka.consumer(assignors=("range",))

    async def loop(consumer: Consumer) -> None:
        async with consumer:
            async for batch in consumer:
                seen.update(record.value or b"" for record in batch.records)

    async with asyncio.timeout(DEADLINE), kafka.producing() as produce:
        await produce(100)
        loops = [asyncio.create_task(loop(first))]
        await _until(lambda: seen.total() == 100)
        loops.append(asyncio.create_task(loop(second)))
        await _has(second, 2)
        await produce(100)
        await _until(lambda: seen.total() == kafka.sent)
        first.stop()
        second.stop()
        await asyncio.gather(*loops)
    assert seen == numbers(kafka.sent)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.01)


async def _has(consumer: Consumer, partitions: int) -> None:
    """Wait until the consumer, which may not be entered yet, has so many partitions."""

    def so_many() -> bool:
        try:
            return len(consumer.assignment()) == partitions
        except IllegalStateError:
            return False

    await _until(so_many)


async def test_a_group_that_shares_no_assignor_is_a_fatal_error_with_the_way_out(
    kafka: Kafka,
) -> None:
    async with asyncio.timeout(DEADLINE), kafka.consumer(assignors=("range",)) as first:
        await first.poll(timeout=0)
        while len(first.assignment()) < 4:
            await first.poll(timeout=0.1)
        with pytest.raises(InconsistentGroupError, match="cooperative-sticky"):
            async with kafka.consumer() as second:
                await anext(second)


async def test_a_listener_hears_what_happens_in_order(kafka: Kafka) -> None:
    heard: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(("assigned", len(assigned)))

        def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            heard.append(("revoked", len(revoked)))

    await kafka.produce(1)
    consumer = Consumer(
        kafka.topic,
        listener=Listener(),
        bootstrap_servers=kafka.bootstrap,
        group_id=kafka.group,
    )
    async with consumer:
        await read(consumer, 1)
        await consumer.poll(timeout=0.5)
    total = Counter[str]()
    for name, count in heard:
        total[name] += count
    assert total == {"assigned": 4, "revoked": 4}
    assert heard[0][0] == "assigned"


# -- handlers and tasks


async def test_handlers_handle_each_record_once_and_keep_the_order_of_keys(kafka: Kafka) -> None:
    await kafka.produce(300)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, group_id=kafka.group, concurrency=16)
    handled: defaultdict[bytes | None, list[int]] = defaultdict(list)

    @consumer.handler(kafka.topic)
    async def handle(value: bytes, record: Record) -> None:
        await asyncio.sleep(0.001 * (int(value) % 5))
        handled[record.key].append(int(value))
        if sum(map(len, handled.values())) == 300:
            consumer.stop()

    async with asyncio.timeout(DEADLINE):
        await consumer.run()
    assert all(numbers == sorted(numbers) for numbers in handled.values())
    assert sorted(itertools.chain(*handled.values())) == list(range(300))
    assert await kafka.committed() == 300


async def test_a_failed_handler_leaves_its_record_to_the_next_owner(kafka: Kafka) -> None:
    await kafka.produce(20)
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap, group_id=kafka.group, order_by="partition"
    )
    handled: set[bytes] = set()

    @consumer.handler(kafka.topic)
    async def handle(value: bytes) -> None:
        if value == b"7":
            raise ZeroDivisionError
        handled.add(value)

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ZeroDivisionError):
            await consumer.run()
    async with kafka.consumer() as successor:
        again = await read(successor, 1) + await rest(successor)
    assert b"7" in again
    assert set(again) | handled == set(numbers(20))
    assert not set(again) & handled


async def test_tasks_of_a_group_count_when_they_end(kafka: Kafka) -> None:
    await kafka.produce(100)
    done: list[bytes] = []

    async def work(record: Record, suffix: bytes) -> None:
        await asyncio.sleep(0.002)
        done.append((record.value or b"") + suffix)

    async with (
        asyncio.timeout(DEADLINE),
        kafka.consumer() as consumer,
        consumer.task_group(concurrency=32) as tasks,
    ):
        submitted = 0
        async for batch in consumer:
            for record in batch.records:
                assert await tasks.submit(work, record, b"!")
                submitted += 1
            if submitted == 100:
                break  # leaving the group waits for its tasks, whose records count
    assert Counter(done) == Counter({value + b"!": 1 for value in numbers(100)})
    assert await kafka.committed() == 100


# -- positions and look-ups


async def test_seeking_pausing_and_looking_up_offsets(kafka: Kafka) -> None:
    await kafka.produce(60)
    async with kafka.consumer(group_id=None) as consumer, asyncio.timeout(DEADLINE):
        await read(consumer, 60)
        ends = await consumer.end_offsets()
        assert sum(ends.values()) == 60
        assert set((await consumer.beginning_offsets()).values()) == {0}
        assert {tp: consumer.position(tp) for tp in ends} == ends
        assert {tp: consumer.highwater(tp) for tp in ends if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        assert await consumer.partitions_for_topic(kafka.topic) == {0, 1, 2, 3}
        assert await consumer.partitions_for_topic("no-such-topic") == frozenset()

        tp = max(ends, key=lambda tp: ends[tp])
        consumer.seek(tp, ends[tp] - 3)
        assert len(await read(consumer, 3)) == 3
        assert await rest(consumer) == []

        await consumer.seek_to_beginning()
        assert Counter(await read(consumer, 60)) == numbers(60)
        await consumer.seek_to_beginning()
        await consumer.seek_to_end()
        assert await rest(consumer) == []

        consumer.pause(tp)
        assert consumer.paused() == {tp}
        consumer.seek(tp, 0)
        assert await rest(consumer) == []
        consumer.resume(tp)
        assert len(await read(consumer, ends[tp])) == ends[tp]

        first = (await consumer.offsets_for_times({tp: 0}))[tp]
        assert first is not None
        assert first.offset == 0
        assert (await consumer.offsets_for_times({tp: 2**50}))[tp] is None


async def test_partitions_assigned_by_hand_are_read_and_committed(kafka: Kafka) -> None:
    await kafka.produce(60)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, group_id=kafka.group)
    wanted = {kafka.partition(0), kafka.partition(1)}
    async with asyncio.timeout(DEADLINE), consumer:
        consumer.assign(wanted)
        values = await rest(consumer)
        assert consumer.assignment() == wanted
        await consumer.commit()
        found = await consumer.committed()
        assert sum(offset.offset for offset in found.values() if offset) == len(values)


async def test_a_pattern_finds_topics_and_unsubscribing_leaves_them(kafka: Kafka) -> None:
    await kafka.produce(20)
    consumer = Consumer(
        pattern=f"{kafka.topic[:-4]}.*", bootstrap_servers=kafka.bootstrap, group_id=kafka.group
    )
    async with asyncio.timeout(DEADLINE), consumer:
        await read(consumer, 20)
        assert consumer.subscription() == {kafka.topic}
        await consumer.poll(timeout=0)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert await kafka.committed() == 20
        consumer.subscribe(kafka.topic)
        await kafka.produce(5)
        assert Counter(await read(consumer, 5)) == numbers(5, 20)


@pytest.mark.parametrize(("back", "expected"), [(timedelta(hours=1), 10), ("latest", 0)])
async def test_where_to_begin_can_be_chosen(kafka: Kafka, back: OffsetReset, expected: int) -> None:
    await kafka.produce(10)
    async with kafka.consumer(auto_offset_reset=back) as consumer:
        assert len(await rest(consumer)) == expected


async def test_no_committed_offset_may_be_an_error(kafka: Kafka) -> None:
    async with kafka.consumer(auto_offset_reset="error") as consumer:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(NoOffsetError):
                await anext(consumer)


# -- brokers that are not there


async def test_an_unreachable_broker_is_named_in_the_log_and_closing_is_quick(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with (
            asyncio.timeout(DEADLINE),
            Consumer("orders", bootstrap_servers=address, group_id="billing") as consumer,
        ):
            while address not in caplog.text:
                batch = await consumer.poll(timeout=0.1)
                assert list(batch.records) == []
            begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 10


async def test_a_topic_that_does_not_exist_is_named_in_the_log(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with asyncio.timeout(DEADLINE), kafka.consumer("no-such-topic") as consumer:
            while "no-such-topic" not in caplog.text:
                await consumer.poll(timeout=0.1)
