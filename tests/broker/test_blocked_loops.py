"""A member whose event loop is blocked for longer than its session, on a real broker.

It runs in a thread of its own, so that the test can look on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.numbered_records import DEADLINE, Member, Numbers, place, until

from asyncrevoke import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from asyncrevoke.broker import KafkaCluster, RunningBroker
    from asyncrevoke.config import ConsumerOptions

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

SESSION = 3.0


class BlockedMember:
    """Handles records; when told to, its loop body blocks the event loop until it is told not to,
    or for ever so long as ``block`` takes."""

    def __init__(
        self, numbers: Numbers, block: Callable[[], None], **options: Unpack[ConsumerOptions]
    ) -> None:
        self._numbers = numbers
        self._block = block
        options.setdefault("session_timeout", SESSION)
        options.setdefault("heartbeat_interval", 0.5)
        self._consumer = numbers.consumer(**options)
        self.handled: Counter[tuple[int, int]] = Counter()
        self.lost: frozenset[TopicPartition] = frozenset()
        self.members: set[str] = set()
        self.coordinator: str | None = None
        self.blocked = threading.Event()
        self.runs_again = threading.Event()
        self._shall_block = threading.Event()

    async def run(self) -> None:
        """In the background, until :meth:`stop`."""
        await asyncio.to_thread(lambda: asyncio.run(self._run()))

    def stop(self) -> None:
        self._consumer.stop()

    def block(self) -> None:
        self._shall_block.set()

    async def _run(self) -> None:
        async with self._consumer as consumer:
            async for batch in consumer:
                self.handled.update(map(place, batch.records))
                self.lost |= batch.lost
                self.members |= {consumer.group_metadata().member_id} - {""}
                self.coordinator = consumer.health().coordinator
                if self._shall_block.is_set() and not self.blocked.is_set():
                    self.blocked.set()
                    self._block()
                    self.runs_again.set()


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, partitions=4)


def sleep() -> None:
    time.sleep(1.8 * SESSION)


def compute() -> None:
    until = time.monotonic() + 1.8 * SESSION
    while time.monotonic() < until:
        sum(range(1000))


async def blocked_once(
    numbers: Numbers, block: Callable[[], None], **options: Unpack[ConsumerOptions]
) -> BlockedMember:
    """A member that was blocked, then handled what had come meanwhile, and left."""
    member = BlockedMember(numbers, block, **options)
    task = asyncio.create_task(member.run())
    await numbers.send(20)
    await until(lambda: member.handled.total() >= 20, "the first records are handled")
    member.block()
    await numbers.send(20)
    await until(member.blocked.is_set, "its loop is blocked")
    await numbers.send(20)
    await until(member.runs_again.is_set, "its loop runs again")
    await until(lambda: len(member.handled) >= 60, "all records are handled")
    # One more heartbeat each way, so that a loss would have been heard of.
    await numbers.send(20)
    await until(lambda: len(member.handled) >= 80, "records are handled afterwards")
    member.stop()
    async with asyncio.timeout(DEADLINE):
        await task
    return member


@pytest.mark.parametrize("block", [sleep, compute])
async def test_a_member_that_is_blocked_beyond_its_session_stays_in_the_group(
    numbers: Numbers, block: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "asyncrevoke"):
        member = await blocked_once(numbers, block)
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled == await numbers.written()
    assert await numbers.committed() == 80
    blocked = [r.getMessage() for r in caplog.records if "event loop is blocked" in r.getMessage()]
    assert len(blocked) == 1
    assert "test_blocked_loops.py:" in blocked[0]
    assert block.__name__ in blocked[0]
    assert not threads()


async def test_without_the_thread_the_same_member_is_put_out_and_repeats_records(
    numbers: Numbers,
) -> None:
    member = await blocked_once(numbers, sleep, heartbeat_thread=False)
    assert member.lost
    assert len(member.members) == 2
    assert set(member.handled) == set(await numbers.written())


async def test_the_thread_does_not_hold_the_membership_beyond_max_poll_interval(
    numbers: Numbers,
) -> None:
    member = await blocked_once(
        numbers, lambda: time.sleep(8.0), session_timeout=2.0, max_poll_interval=3.0
    )
    assert member.lost
    assert len(member.members) == 2


async def test_a_rebalance_that_begins_while_a_member_is_blocked_costs_nothing(
    numbers: Numbers,
) -> None:
    joined = threading.Event()
    member = BlockedMember(numbers, lambda: wait_for(joined))
    task = asyncio.create_task(member.run())
    await numbers.send(20)
    await until(lambda: member.handled.total() >= 20, "the first records are handled")
    member.block()
    await numbers.send(4)
    await until(member.blocked.is_set, "its loop is blocked")
    other = numbers.consumer(session_timeout=SESSION, heartbeat_interval=0.5)
    async with Member(other) as second:
        # It waits for the blocked one, longer than the session of that lasts.
        await asyncio.sleep(2 * SESSION)
        assert not other.assignment()
        joined.set()
        await until(lambda: len(other.assignment()) == 2, "the partitions are shared")
        await numbers.send(40)
        await until(
            lambda: len(member.handled) + len(second.handled) >= 64, "all records are handled"
        )
    member.stop()
    async with asyncio.timeout(DEADLINE):
        await task
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled + second.handled == await numbers.written()


async def test_a_coordinator_that_goes_while_a_member_is_blocked_costs_no_membership(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic, 6)
    address = kafka_cluster.bootstrap_servers
    numbers = Numbers(address, address, topic, partitions=6)
    moved = threading.Event()
    member = BlockedMember(numbers, lambda: wait_for(moved), session_timeout=10.0)
    task = asyncio.create_task(member.run())
    await numbers.send(30)
    await until(lambda: member.handled.total() >= 30, "the first records are handled")
    member.block()
    await numbers.send(6)
    await until(member.blocked.is_set, "its loop is blocked")
    (gone,) = (
        each for each in kafka_cluster.brokers if each.bootstrap_servers == member.coordinator
    )
    try:
        with caplog.at_level(logging.INFO, "asyncrevoke"):
            await asyncio.to_thread(gone.stop)
            await until(lambda: "blocked" in caplog.text, "the thread has taken over")
            numbers.around = ",".join(
                each.bootstrap_servers for each in kafka_cluster.brokers if each is not gone
            )
            await coordinated_by_another(numbers, gone.bootstrap_servers)
            # Several heartbeats of the thread go to the old one.
            await asyncio.sleep(2.0)
            moved.set()
            await until(member.runs_again.is_set, "its loop runs again")
            await numbers.send(30)
            await until(lambda: len(member.handled) >= 66, "all records are handled")
    finally:
        await asyncio.to_thread(kafka_cluster.start)
    member.stop()
    async with asyncio.timeout(DEADLINE):
        await task
    assert not member.lost
    assert len(member.members) == 1
    assert member.handled == await numbers.written()
    assert "a heartbeat of the thread was not answered" in caplog.text


async def coordinated_by_another(numbers: Numbers, gone: str) -> None:
    """Wait until the brokers that are left name another coordinator, and it answers."""
    looker = Consumer(bootstrap_servers=numbers.around, group_id=numbers.group)
    async with looker, asyncio.timeout(DEADLINE):
        while looker.health().coordinator in (None, gone):
            await looker.committed(TopicPartition(numbers.topic, 0))


def wait_for(event: threading.Event) -> None:
    assert event.wait(DEADLINE)


def threads() -> list[threading.Thread]:
    """Heartbeat threads that run."""
    return [thread for thread in threading.enumerate() if thread.name == "asyncrevoke heartbeat"]
