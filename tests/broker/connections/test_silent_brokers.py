"""Brokers and connections that die without a word: nothing is closed, and there is no response."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from broker.connections.tunnels import HOST, TunnelledCluster
from broker.records.numbered_records import NumberedMember, Numbers, place, until
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Self, Unpack

    from asyncrevoke import Consumer, Record
    from asyncrevoke.broker import KafkaBroker
    from asyncrevoke.client.config import ConsumerOptions

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

_log = logging.getLogger(__name__)

SESSION = 10.0
# What a fault may cost at most.
BOUND = SESSION + 5.0
# How long a fault lasts where nothing may take longer than BOUND.
OBSERVED = BOUND + 5.0
PROPERTIES = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
PROTOCOLS = ["classic", pytest.param("consumer", marks=pytest.mark.variant)]


@pytest.fixture(scope="module")
def three() -> Iterator[TunnelledCluster]:
    with TunnelledCluster(3, PROPERTIES) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one() -> Iterator[TunnelledCluster]:
    with TunnelledCluster(1, PROPERTIES) as cluster:
        yield cluster


def numbers_on(cluster: TunnelledCluster) -> Numbers:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    cluster.brokers[0].create_topic(topic, 6)
    return Numbers(cluster.bootstrap_servers, cluster.around(), topic, partitions=6)


def consumer_of(numbers: Numbers, protocol: str, **options: Unpack[ConsumerOptions]) -> Consumer:
    options.setdefault("commit_interval", 0.2)
    if protocol == "consumer":
        options.setdefault("group_protocol", "consumer")
    else:
        options.setdefault("session_timeout", SESSION)
    return numbers.consumer(**options)


def member_of(numbers: Numbers, protocol: str) -> NumberedMember:
    return NumberedMember(consumer_of(numbers, protocol), tasks=True)


def coordinator_of(consumer: Consumer, cluster: TunnelledCluster) -> KafkaBroker:
    address = consumer.health().coordinator
    (found,) = (
        broker for broker in cluster.brokers if address == f"{HOST}:{cluster.ways[broker.port]}"
    )
    return found


class SteadyMember(NumberedMember):
    """Handles about 300 records a second, and notes when it has handled those of each partition."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(consumer, tasks=True)
        self.times: defaultdict[int, list[float]] = defaultdict(list)

    @override
    async def _work(self, record: Record) -> None:
        await asyncio.sleep(0.1)
        self.handled[place(record)] += 1
        self.times[record.partition].append(time.monotonic())


class Commits(logging.Handler):
    """Notes when commits were acknowledged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.times: list[float] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("committed"):
            self.times.append(time.monotonic())

    @contextmanager
    def listening(self) -> Generator[Self]:
        logger = logging.getLogger("asyncrevoke")
        level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield self
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)


def longest_gap(times: list[float], begun: float, end: float) -> float:
    within = [begun, *(at for at in times if begun < at < end), end]
    return max(after - before for before, after in pairwise(within))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_frozen_coordinator_delays_records_and_commits_by_session_timeout_plus_5_s_at_most(
    three: TunnelledCluster, protocol: str
) -> None:
    numbers = numbers_on(three)
    await numbers.send(15000)
    member = SteadyMember(
        consumer_of(numbers, protocol, max_partition_fetch_bytes=4096, buffer_memory=65536)
    )
    with Commits().listening() as commits:
        async with three.tunnels(), member:
            await member.has(500)
            frozen = coordinator_of(member.consumer, three)
            begun = time.monotonic()
            frozen.pause()
            try:
                await asyncio.sleep(OBSERVED)
            finally:
                frozen.resume()
            end = time.monotonic()
            repeated = member.handled.total() - len(member.handled)
    consumed = max(longest_gap(times, begun, end) for times in member.times.values())
    committed = longest_gap(commits.times, begun, end)
    _log.info(
        "frozen coordinator, %s: consumption stood %.1f s, commits %.1f s, repeated %s",
        protocol,
        consumed,
        committed,
        repeated,
    )
    assert not member.lost
    assert repeated == 0
    assert max(consumed, committed) < BOUND


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_idle_group_keeps_its_partitions_while_another_broker_becomes_its_coordinator(
    three: TunnelledCluster, protocol: str
) -> None:
    numbers = numbers_on(three)
    async with (
        three.tunnels(),
        member_of(numbers, protocol) as first,
        member_of(numbers, protocol) as second,
    ):
        members = (first, second)
        await until(
            lambda: all(len(member.consumer.assignment()) == 3 for member in members),
            "their halves",
        )
        assigned = [member.consumer.assignment() for member in members]
        frozen = coordinator_of(first.consumer, three)
        before = first.consumer.health().coordinator
        begun = time.monotonic()
        frozen.pause()
        try:
            while time.monotonic() - begun < OBSERVED:
                assert [member.consumer.assignment() for member in members] == assigned
                assert (
                    max(member.consumer.health().heartbeat_age or 0.0 for member in members)
                    < SESSION
                )
                await asyncio.sleep(0.1)
            assert first.consumer.health().coordinator != before
        finally:
            frozen.resume()
        await numbers.send(300)
        written = await numbers.written()
        await until(
            lambda: len(first.handled) + len(second.handled) >= written.total(), "all records"
        )
    assert not first.lost
    assert not second.lost
    assert first.handled + second.handled == written


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.variant)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_lone_member_whose_connections_are_dead_opens_others_within_a_third_of_the_session(
    request: pytest.FixtureRequest, size: int, protocol: str
) -> None:
    cluster: TunnelledCluster = request.getfixturevalue({1: "one", 3: "three"}[size])
    numbers = numbers_on(cluster)
    async with cluster.tunnels() as tunnels, member_of(numbers, protocol) as member:
        async with numbers.trickling():
            await member.has(100)
            begun = time.monotonic()
            assert sum(tunnel.black_hole() for tunnel in tunnels) > 3
            sent = numbers.sent
            health = member.consumer.health
            await until(
                lambda: (health().heartbeat_age or BOUND) < time.monotonic() - begun, "a heartbeat"
            )
            beaten = time.monotonic() - begun
            await member.has(sent + 100)
            consumed = time.monotonic() - begun
            async with asyncio.timeout(BOUND):
                while await numbers.committed() < sent:  # noqa: ASYNC110 - the broker's
                    await asyncio.sleep(0.1)
            committed = time.monotonic() - begun
        await member.has_all(numbers)
    _log.info(
        "black hole, %s brokers, %s: heartbeat after %.1f s, records %.1f s, commits %.1f s",
        size,
        protocol,
        beaten,
        consumed,
        committed,
    )
    assert not member.lost
    assert committed < BOUND


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_round_trips_longer_than_a_third_of_the_session_leave_the_membership_alone(
    one: TunnelledCluster, protocol: str
) -> None:
    numbers = numbers_on(one)
    async with one.tunnels() as (tunnel,), member_of(numbers, protocol) as member:
        async with numbers.trickling(pause=0.2):
            await member.has(50)
            tunnel.delay = 2.0
            begun = time.monotonic()
            oldest = 0.0
            while time.monotonic() - begun < OBSERVED:
                oldest = max(oldest, member.consumer.health().heartbeat_age or 0.0)
                await asyncio.sleep(0.1)
            handled = len(member.handled)
            await member.has(handled + 20)
            tunnel.delay = 0.0
        await member.has_all(numbers)
    _log.info("2 s each way, %s: oldest confirmed heartbeat %.1f s", protocol, oldest)
    assert not member.lost
    assert oldest < BOUND
