"""One group of our consumers and Java's, on a real broker, with records produced all the time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal, Self

import pytest
from aiokafka import AIOKafkaProducer
from interop.java_member import JavaMember, Seen, java_member

from asyncrevoke import Consumer, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

Assignor = Literal["cooperative-sticky", "range"]
DEADLINE = 60.0
PARTITIONS = 6


class OurMember:
    """A loop over one of our consumers. While ``delaying``, it delays each revoke that it hears
    of; those of ``holding`` it delays in any case."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: list[Seen] = []
        self.lost: set[TopicPartition] = set()
        self.delaying = False
        self.delayed: set[TopicPartition] = set()
        self.holding: set[TopicPartition] = set()

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    async def run(self) -> None:
        async for records, to_be_revoked, lost in self.consumer:
            self.seen.extend(
                Seen(record.partition, record.offset, int(record.value or b"-1"))
                for record in records
            )
            self.lost |= lost
            if kept := to_be_revoked if self.delaying else to_be_revoked & self.holding:
                assert self.consumer.delay_revoke(kept)
                self.delayed |= kept


class Group:
    """Both kinds of members, and a producer that never rests."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, assignor: Assignor) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self.topic = topic
        self._assignor: Assignor = assignor
        self._stack = AsyncExitStack()
        self._producing: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self.sent = 0
        self.ours: list[OurMember] = []
        self.javas: list[JavaMember] = []
        self.everything = {TopicPartition(topic, number) for number in range(PARTITIONS)}

    async def __aenter__(self) -> Self:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap)
        await self._stack.enter_async_context(producer)
        self._producing = asyncio.create_task(self._produce(producer))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stop_producing()
        await self._stack.aclose()

    async def _produce(self, producer: AIOKafkaProducer) -> None:
        while not self._enough.is_set():
            for partition in range(PARTITIONS):
                await producer.send_and_wait(self.topic, b"%d" % self.sent, partition=partition)
                self.sent += 1
            await asyncio.sleep(0.01)

    async def _stop_producing(self) -> None:
        self._enough.set()
        if self._producing is not None:
            await self._producing

    async def our_member(self) -> OurMember:
        """One of ours joins."""
        consumer = await self._stack.enter_async_context(
            Consumer(
                self.topic,
                bootstrap_servers=self._bootstrap,
                group_id=f"group-of-{self.topic}",
                assignors=(self._assignor,),
                heartbeat_interval=0.3,
            )
        )
        member = OurMember(consumer)
        self.ours.append(member)
        loop = asyncio.create_task(member.run())
        self._stack.push_async_callback(self._end, member, loop)
        return member

    @staticmethod
    async def _end(member: OurMember, loop: asyncio.Task[None]) -> None:
        member.consumer.stop()
        await loop

    async def java_member(self) -> JavaMember:
        """One of Java's joins."""
        member = await self._stack.enter_async_context(
            java_member(
                self._folder,
                self._bootstrap,
                self.topic,
                f"group-of-{self.topic}",
                self._assignor,
            )
        )
        self.javas.append(member)
        return member

    def members(self) -> list[OurMember | JavaMember]:
        """Ours first, in the order in which they joined."""
        return [*self.ours, *self.javas]

    async def until_balanced(self, *shares: int) -> None:
        """Wait until the members own so many partitions each (ours first), each partition has
        exactly one owner, and everything flows."""

        def shared() -> bool:
            owners = [member.owned for member in self.members()]
            return (
                [len(owned) for owned in owners] == list(shares)
                and set().union(*owners) == self.everything
                and sum(map(len, owners)) == PARTITIONS
            )

        await until(shared)
        await self.flows(self.everything)
        assert shared()

    async def flows(self, partitions: set[TopicPartition]) -> None:
        """Wait until records that are produced from now on arrive of each of these partitions."""
        first = self.sent + PARTITIONS
        wanted = {tp.partition for tp in partitions}
        await until(lambda: wanted <= {s.partition for s in self.all_seen() if s.value >= first})

    def all_seen(self) -> list[Seen]:
        return [seen for member in self.members() for seen in member.seen]

    async def check_that_each_record_was_consumed_once(self) -> None:
        """Java's member says itself what it has read and could not commit; that may come again."""
        await self._stop_producing()
        await until(lambda: len({seen.value for seen in self.all_seen()}) >= self.sent)
        times = Counter(seen.value for seen in self.all_seen())
        assert set(times) == set(range(self.sent))
        uncommitted = {
            seen
            for java in self.javas
            for seen in java.seen
            if seen.offset >= java.committed.get(seen.partition, 0)
        }
        twice = {seen for seen in self.all_seen() if times[seen.value] > 1}
        assert twice <= uncommitted
        in_order = defaultdict[int, list[int]](list)
        for member in self.ours:
            assert member.lost == set()
            in_order.clear()
            for seen in member.seen:
                in_order[seen.partition].append(seen.offset)
            assert all(offsets == sorted(set(offsets)) for offsets in in_order.values())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.02)


@pytest.fixture
def start(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> Callable[[Assignor], Group]:
    return lambda assignor: Group(tmp_path, kafka_broker.bootstrap_servers, kafka_topic, assignor)


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_java_joins_a_group_that_we_lead_and_waits_for_what_we_delay(
    start: Callable[[Assignor], Group],
) -> None:
    async with start("cooperative-sticky") as group:
        ours = await group.our_member()
        await group.until_balanced(6)
        ours.delaying = True
        java = await group.java_member()
        await until(lambda: len(ours.delayed) == 3)
        # Java has joined and waits; what we keep flows all the while.
        for _ in range(3):
            await group.flows(group.everything - ours.delayed)
        assert ours.owned == group.everything
        assert java.ever_owned == set()
        ours.delaying = False
        await group.until_balanced(3, 3)
        assert java.owned == ours.delayed
        await java.leave()
        group.javas[0].owned.clear()
        await group.until_balanced(6, 0)
        await group.check_that_each_record_was_consumed_once()


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_we_join_a_group_that_java_leads_and_delay_what_it_takes_for_another(
    start: Callable[[Assignor], Group],
) -> None:
    async with start("cooperative-sticky") as group:
        first = await group.java_member()
        await group.until_balanced(6)
        ours = await group.our_member()
        await group.until_balanced(3, 3)
        ours.delaying = True
        second = await group.java_member()
        await until(lambda: len(ours.delayed) == 1)
        for _ in range(3):
            await group.flows(group.everything - ours.delayed)
        assert not second.ever_owned & ours.delayed
        ours.delaying = False
        await group.until_balanced(2, 2, 2)
        await first.leave()  # the leader
        first.owned.clear()
        await group.until_balanced(3, 0, 3)
        await group.check_that_each_record_was_consumed_once()


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_what_is_released_moves_on_under_a_java_leader_while_the_rest_is_delayed(
    start: Callable[[Assignor], Group],
) -> None:
    async with start("cooperative-sticky") as group:
        java = await group.java_member()
        await group.until_balanced(6)
        ours = await group.our_member()
        await group.until_balanced(3, 3)
        ours.delaying = True
        others = [await group.our_member() for _ in range(4)]
        # Until nobody but us has anything to give up: no other rebalance is to come.
        await until(
            lambda: (
                len(ours.delayed) == 2
                and len(java.owned) == 1
                and sorted(len(other.owned) for other in others) == [0, 0, 1, 1]
            )
        )
        for _ in range(3):
            await group.flows(group.everything - ours.delayed)
        ours.holding = {max(ours.delayed)}
        ours.delaying = False
        moved = ours.delayed - ours.holding
        await until(lambda: moved <= set().union(*(other.owned for other in others)))
        assert ours.owned >= ours.holding
        ours.holding = set()
        await group.until_balanced(1, 1, 1, 1, 1, 1)
        await group.check_that_each_record_was_consumed_once()


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_an_eager_group_of_both_gives_everything_up_and_repeats_nothing(
    start: Callable[[Assignor], Group],
) -> None:
    async with start("range") as group:
        ours = await group.our_member()
        await group.until_balanced(6)
        java = await group.java_member()
        await group.until_balanced(3, 3)
        await java.leave()
        java.owned.clear()
        await group.until_balanced(6, 0)
        assert ours.lost == set()
        await group.check_that_each_record_was_consumed_once()


@pytest.mark.kafka_topic(partitions=PARTITIONS)
async def test_we_join_an_eager_group_that_java_leads(
    start: Callable[[Assignor], Group],
) -> None:
    async with start("range") as group:
        java = await group.java_member()
        await group.until_balanced(6)
        await group.our_member()
        await group.until_balanced(3, 3)
        await java.leave()
        java.owned.clear()
        await group.until_balanced(6, 0)
        await group.check_that_each_record_was_consumed_once()


@pytest.mark.kafka_topic(partitions=2)
async def test_with_a_java_member_the_gap_is_processed_and_nothing_repeated(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    """Every tenth record is of a slow key, which is far behind when Java wants a partition."""
    servers, count = kafka_broker.bootstrap_servers, 100
    first, later = asyncio.Event(), asyncio.Event()
    handled: list[tuple[int, int]] = []
    consumer = Consumer(bootstrap_servers=servers, group_id=kafka_topic, heartbeat_interval=0.3)

    @consumer.handler(kafka_topic)
    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await (later if record.offset else first).wait()
        handled.append((record.partition, record.offset))

    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for partition, offset in itertools.product(range(2), range(count)):
            key = b"%d" % offset if offset % 10 else b"slow"
            await producer.send(kafka_topic, b"%d" % offset, key=key, partition=partition)
    async with consumer:
        await until(lambda: len(handled) == 2 * count * 9 // 10)
        join = java_member(tmp_path, servers, kafka_topic, kafka_topic, "cooperative-sticky")
        async with join as java:
            await until(lambda: consumer.health().revoking > 0)
            first.set()
            await until(lambda: {(0, 0), (1, 0)} <= set(handled))
            assert len(consumer.assignment()) == 2, "the rest of the slow key is processed first"
            later.set()
            await until(lambda: len(java.owned) == 1)
            assert sorted(handled) == list(itertools.product(range(2), range(count)))
    assert java.seen == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.kafka_topic(partitions=2)
async def test_a_stop_in_a_group_with_a_java_member_repeats_nothing(
    tmp_path: Path,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    protocol: Literal["classic", "consumer"],
) -> None:
    """Every tenth record is of a slow key, which is far behind when our member is stopped."""
    servers, count = kafka_broker.bootstrap_servers, 100
    first, later = asyncio.Event(), asyncio.Event()
    handled: list[int] = []
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=kafka_topic,
        group_protocol=protocol,
        heartbeat_interval=0.3,
    )

    @consumer.handler(kafka_topic)
    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await (later if record.offset else first).wait()
        handled.append(record.offset)

    assignor = "cooperative-sticky" if protocol == "classic" else None
    async with (
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
        java_member(tmp_path, servers, kafka_topic, kafka_topic, assignor) as java,
    ):
        running = asyncio.create_task(consumer.run())
        await until(lambda: len(java.owned) == 1)
        await until(lambda: len(consumer.assignment()) == 1)
        (ours,) = consumer.assignment()
        for offset in range(count):
            key = b"%d" % offset if offset % 10 else b"slow"
            await producer.send(kafka_topic, b"%d" % offset, key=key, partition=ours.partition)
        await until(lambda: len(handled) == count * 9 // 10)
        consumer.stop()
        first.set()
        await until(lambda: 0 in handled)
        assert not running.done(), "the rest of the slow key is handled first"
        later.set()
        await running
        assert sorted(handled) == list(range(count))
        await until(lambda: len(java.owned) == 2)
        await producer.send_and_wait(kafka_topic, b"-1", partition=ours.partition)
        await until(lambda: any(seen.partition == ours.partition for seen in java.seen))
        assert [seen.offset for seen in java.seen if seen.partition == ours.partition] == [count]
