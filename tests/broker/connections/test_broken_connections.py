"""Connections that break, hang and lie, between a member and a real broker."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from broker.records.numbered_records import DEADLINE, NumberedMember, Numbers, place, until
from wire.faulty_proxy import (
    HOST,
    Api,
    FaultyProxy,
    ProxiedResponse,
    altered,
    cut_in_mid_frame,
    let_through,
    withhold,
)

from asyncrevoke import CorruptRecordError
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.broker.process.properties import BrokerNode, new_cluster_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from broker.records.numbered_records import Place

    from asyncrevoke import Consumer, TopicPartition

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def proxy_port() -> int:
    return next(free_ports())


@pytest.fixture(scope="module")
def broker(proxy_port: int) -> Iterator[KafkaBroker]:
    """A broker that tells its clients to come to the proxy."""
    node = BrokerNode.choose(free_ports())
    advertised = f"CLIENTS://{HOST}:{proxy_port},BROKERS://{HOST}:{node.brokers_port}"
    broker = KafkaBroker(properties={"advertised.listeners": advertised})
    broker.join_cluster(1, (node,), new_cluster_id())
    with broker:
        yield broker


@pytest_asyncio.fixture
async def proxy(broker: KafkaBroker, proxy_port: int) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(proxy_port, broker.port)
    await proxy.accept()
    yield proxy
    await proxy.refuse()


@pytest.fixture
def numbers(broker: KafkaBroker, proxy: FaultyProxy) -> Numbers:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=3)
    return Numbers(proxy.address, broker.admin_addresses[0], topic)


def name(api: Api) -> str:
    return api.name.lower()


# Leader epochs are asked for only after an election: see the broker that restarts.
RARE = {Api.LEAVE_GROUP, Api.API_VERSIONS, Api.OFFSETS_FOR_LEADER_EPOCH}
CUT = [api for api in Api if api not in RARE]


@pytest.mark.parametrize("lost", ["request", "response"])
@pytest.mark.parametrize("api", CUT, ids=name)
async def test_a_connection_that_ends_in_mid_frame_loses_and_repeats_nothing(
    numbers: Numbers, proxy: FaultyProxy, api: Api, lost: str
) -> None:
    await numbers.send(100)
    if lost == "response":
        proxy.strike(api, cut_in_mid_frame, times=2)
    else:
        proxy.lose(api, times=2)
    async with NumberedMember(numbers.consumer(commit_interval=0.05), tasks=True) as member:
        await member.has(100)
        await until(lambda: proxy.struck[api] == 2, f"{api.name} is sent")
        await numbers.send(50)
        await member.has_all(numbers)
    assert not member.lost
    assert await numbers.committed() == 150


@pytest.mark.parametrize("api", [Api.FETCH, Api.HEARTBEAT, Api.OFFSET_COMMIT], ids=name)
async def test_a_request_without_a_response_is_sent_again(
    numbers: Numbers, proxy: FaultyProxy, api: Api
) -> None:
    consumer = numbers.consumer(commit_interval=0.05, request_timeout=1.0)
    await numbers.send(30)
    async with NumberedMember(consumer, tasks=True) as member:
        await member.has(30)
        before = proxy.requests.copy()
        proxy.strike(api, withhold, times=2)
        async with numbers.trickling():
            await until(lambda: proxy.struck[api] == 2, f"{api.name} is asked for again")
            asked = proxy.requests[api]
            await until(lambda: proxy.requests[api] > asked, f"{api.name} is asked a third time")
        await member.has_all(numbers)
    assert not member.lost
    assert await numbers.committed() == member.handled.total()
    # Looking for the leader or the coordinator is not a reason to ask without end.
    assert (proxy.requests - before)[Api.METADATA] < 10
    assert (proxy.requests - before)[Api.FIND_COORDINATOR] < 10


@pytest.mark.parametrize(("way", "attempts"), [("silent", 8), ("hanging up", 15)])
async def test_a_broker_that_is_silent_or_drops_connections_is_retried_with_backoff(
    numbers: Numbers,
    proxy: FaultyProxy,
    caplog: pytest.LogCaptureFixture,
    way: str,
    attempts: int,
) -> None:
    clock = asyncio.get_running_loop().time
    await numbers.send(30)
    # The heartbeat thread would log pauses of this process.
    consumer = numbers.consumer(request_timeout=1.0, heartbeat_thread=False)
    async with NumberedMember(consumer, tasks=True) as member:
        await member.has(30)
        with caplog.at_level(logging.INFO, "asyncrevoke"):
            caplog.clear()
            begun, before = clock(), proxy.connections
            if way == "silent":
                proxy.go_deaf()
            else:
                await proxy.hang_up()
            await numbers.send(30)
            await until(lambda: proxy.connections - before >= attempts, "attempts to connect")
            lines = [record.getMessage() for record in caplog.records]
            assert clock() - begun > 1, "all of them at once"
        proxy.heal()
        await member.has_all(numbers)
    assert not member.lost
    assert len(lines) <= 6, lines
    assert any("waiting for a broker" in line and proxy.address in line for line in lines), lines


async def test_a_member_started_before_its_broker_logs_it_and_reads_once_the_broker_is_up(
    numbers: Numbers, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await numbers.send(30)
    await proxy.refuse()
    async with NumberedMember(numbers.consumer(), tasks=True) as member:
        await until(lambda: "waiting for a broker" in caplog.text, "a warning")
        assert proxy.address in caplog.text
        await proxy.accept()
        await member.has_all(numbers)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 2, caplog.text


async def test_closing_while_no_broker_responds_waits_for_leave_group_only(
    numbers: Numbers, proxy: FaultyProxy
) -> None:
    clock = asyncio.get_running_loop().time
    consumer = numbers.consumer(commit_interval=0.05)
    await numbers.send(30)
    async with NumberedMember(consumer, tasks=True) as member:
        await member.has(30)
        async with asyncio.timeout(DEADLINE):
            while await numbers.committed() < 30:  # noqa: ASYNC110 - the broker's
                await asyncio.sleep(0.05)
        await proxy.refuse()
        await until(lambda: consumer.health().coordinator is None, "it is noticed")
        begun = clock()
    assert clock() - begun < 10


@pytest.mark.parametrize("live", [0, 1, 2])
async def test_one_reachable_bootstrap_address_is_enough(
    numbers: Numbers, proxy: FaultyProxy, live: int
) -> None:
    ports = free_ports()
    silent = FaultyProxy(next(ports), proxy.broker_port)
    await silent.accept()
    silent.go_deaf()
    addresses = [silent.address, f"{HOST}:{next(ports)}"]
    addresses.insert(live, proxy.address)
    await numbers.send(30)
    consumer = numbers.consumer(bootstrap_servers=addresses, request_timeout=1.0)
    async with NumberedMember(consumer, tasks=True) as member:
        await member.has_all(numbers)
    await silent.refuse()


# -- responses that lie


async def test_a_corrupt_batch_is_reported_and_read_once_it_is_received_intact(
    numbers: Numbers, proxy: FaultyProxy
) -> None:
    await numbers.send(20)
    consumer = numbers.consumer()
    async with NumberedMember(consumer) as member:
        await member.has(20)
        positions = {tp: consumer.position(tp) for tp in consumer.assignment()}
        proxy.strike(Api.FETCH, altered(b"number-000025", b"numbed-000025"), times=None)
        await numbers.send(30)
        await until(lambda: bool(member.errors), "an error")
        corrupt = next(iter(member.errors[0].partitions))
        await numbers.send(50)
        assert corrupt.partition == 25 % numbers.partitions
        whole = {at for at in await numbers.written() if at[0] != corrupt.partition}
        await until(lambda: whole <= set(member.handled), "the other partitions flow")
        for error in member.errors:
            assert isinstance(error, CorruptRecordError)
            assert error.offset == positions[corrupt]
            assert f"{corrupt.topic}-{corrupt.partition} at offset {error.offset}" in str(error)
            assert "checksum" in str(error)
        assert consumer.position(corrupt) == positions[corrupt]
        proxy.heal()
        await member.has_all(numbers)
    assert len(member.errors) < 10


async def test_a_batch_that_stays_corrupt_can_be_skipped_by_seek(
    numbers: Numbers, proxy: FaultyProxy
) -> None:
    consumer = numbers.consumer()
    proxy.strike(Api.FETCH, altered(b"number-000010", b"numbed-000010"), times=None)
    await numbers.send(30)
    async with NumberedMember(consumer) as member:
        await until(lambda: bool(member.errors), "an error")
        (corrupt,) = member.errors[0].partitions
        end = re.search(r"goes up to offset (\d+); seek past it", str(member.errors[0]))
        assert end is not None
        await numbers.send(30)
        consumer.seek(corrupt, int(end[1]) + 1)
        rest = {
            (partition, offset)
            for partition, offset in await numbers.written()
            if partition != corrupt.partition or offset > int(end[1])
        }
        await until(lambda: rest <= set(member.handled), "the rest")
    assert set(member.handled) == rest
    assert rest != set(await numbers.written())


async def test_a_slow_link_delays_records_and_not_heartbeats(
    numbers: Numbers, proxy: FaultyProxy
) -> None:
    await numbers.send(3)
    consumer = numbers.consumer(session_timeout=6.0, heartbeat_interval=0.3, commit_interval=0.1)
    async with NumberedMember(consumer, tasks=True) as member:
        await member.has(3)
        proxy.bandwidth = 10_000  # bytes per second: these take longer than the session
        await numbers.send(1000)
        await member.has_all(numbers)
        proxy.heal()
    assert not member.lost
    assert await numbers.committed() == 1003


# -- brokers that freeze and restart


async def test_a_broker_frozen_for_less_than_the_session_loses_and_repeats_nothing(
    numbers: Numbers, broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with NumberedMember(numbers.consumer(request_timeout=1.0), tasks=True) as member:
        async with numbers.trickling():
            await member.has(100)
            broker.pause()
            try:
                await until(lambda: "waiting for a broker to fetch" in caplog.text, "a warning")
                await until(lambda: caplog.text.count("waiting") >= 2, "a warning")
            finally:
                broker.resume()
            await member.has(numbers.sent + 100)
        await member.has_all(numbers)
    assert not member.lost
    assert await numbers.committed() == member.handled.total()


async def test_a_member_disconnected_beyond_its_session_joins_again(
    numbers: Numbers, proxy: FaultyProxy
) -> None:
    consumer = numbers.consumer(
        request_timeout=0.9, session_timeout=2.0, heartbeat_interval=0.3, commit_interval=0.1
    )
    async with NumberedMember(consumer, tasks=True) as member:
        async with numbers.trickling():
            await member.has(100)
            before = consumer.group_metadata()
            proxy.go_deaf()
            await until(lambda: (consumer.health().heartbeat_age or 0) > 4, "a long silence")
            proxy.heal()
            await until(lambda: bool(member.lost), "the loss is reported")
            await member.has(numbers.sent + 50)
        written = await numbers.written()
        await member.has(written.total())
        assert consumer.group_metadata().member_id != before.member_id
    assert {tp.partition for tp in member.lost} == {0, 1, 2}
    # What was handled and could not be committed comes again, and nothing else.
    assert set(member.handled) == set(written)
    assert set(member.handled.values()) <= {1, 2}
    assert await numbers.committed() == written.total()


@pytest.mark.parametrize("way", ["killed", pytest.param("orderly", marks=pytest.mark.variant)])
async def test_a_broker_restart_loses_and_repeats_nothing(
    numbers: Numbers, broker: KafkaBroker, way: str
) -> None:
    async with NumberedMember(numbers.consumer(), tasks=True) as member:
        async with numbers.trickling():
            await member.has(100)
            await asyncio.to_thread(broker.restart, orderly=way == "orderly")
            await member.has(numbers.sent + 100)
        await member.has_all(numbers)
    assert not member.lost
    assert await numbers.committed() == member.handled.total()


async def test_a_position_check_interrupted_by_a_disconnect_is_repeated(
    numbers: Numbers, proxy: FaultyProxy, broker: KafkaBroker
) -> None:
    async with NumberedMember(numbers.consumer(), tasks=True) as member:
        await numbers.send(30)
        await member.has(30)
        proxy.strike(Api.OFFSETS_FOR_LEADER_EPOCH, cut_in_mid_frame, times=2)
        await asyncio.to_thread(broker.restart)
        await numbers.send(30)
        await member.has_all(numbers)
    assert proxy.struck[Api.OFFSETS_FOR_LEADER_EPOCH] == 2
    assert not member.lost


# -- everything at once


async def test_cancelled_polls_during_disconnects_lose_no_record(
    numbers: Numbers, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(7)
    caplog.set_level(logging.WARNING, "asyncrevoke")

    async def now_and_then(response: ProxiedResponse) -> None:
        await (cut_in_mid_frame if chance.random() < 0.1 else let_through)(response)

    for api in Api:
        if api is not Api.API_VERSIONS:
            proxy.strike(api, now_and_then, times=None)
    # If the first response to a JoinGroup is lost, a rebalance waits until the id that it gave away
    # has expired, which takes a session.
    consumers = [
        numbers.consumer(commit_interval=0.1, max_poll_records=20, session_timeout=6.0)
        for _ in range(2)
    ]
    handled: Counter[Place] = Counter()
    cancelled = 0
    lost: set[TopicPartition] = set()
    entered: set[Consumer] = set()

    async def member(consumer: Consumer) -> None:
        nonlocal cancelled
        async with consumer:
            entered.add(consumer)
            while True:
                try:
                    async with asyncio.timeout(chance.random() * 0.02):
                        batch = await anext(consumer)
                except TimeoutError:
                    cancelled += 1
                    continue
                except StopAsyncIteration:
                    return
                lost.update(batch.lost)
                handled.update(map(place, batch.records))

    loops = [asyncio.create_task(member(consumers[0]))]
    async with numbers.trickling():
        await until(lambda: len(handled) >= 100, "100 records")
        loops.append(asyncio.create_task(member(consumers[1])))
        await until(
            lambda: (
                handled.total() >= 1000
                and consumers[1] in entered
                and bool(consumers[1].assignment())
            ),
            "1000 records, and two members",
        )
    written = await numbers.written()
    await until(lambda: len(handled) == written.total(), "all records")
    proxy.heal()
    for consumer in consumers:
        consumer.stop()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*loops)
    assert handled == written
    assert not lost
    assert cancelled > 10
    assert proxy.struck.total() > 50
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) < 30, warnings
    assert await numbers.committed() == written.total()
