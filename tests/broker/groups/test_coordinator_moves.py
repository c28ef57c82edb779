"""A cluster of three brokers, of which the one goes that coordinates the group."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

import pytest
from broker.records.numbered_records import DEADLINE, NumberedMember, Numbers, until

if TYPE_CHECKING:
    from asyncrevoke import Consumer
    from asyncrevoke.broker import KafkaBroker, KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

WAYS = ["killed", *(pytest.param(way, marks=pytest.mark.variant) for way in ("orderly", "frozen"))]


def coordinator_of(consumer: Consumer, cluster: KafkaCluster) -> KafkaBroker:
    address = consumer.health().coordinator
    (coordinator,) = (broker for broker in cluster.brokers if broker.bootstrap_servers == address)
    return coordinator


async def end(broker: KafkaBroker, way: str) -> None:
    ways = {"orderly": broker.stop, "killed": broker.kill, "frozen": broker.pause}
    await asyncio.to_thread(ways[way])


@pytest.mark.parametrize("way", WAYS)
async def test_a_coordinator_failure_repeats_no_record_and_lookups_back_off(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    topic = f"numbers-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic, 6)
    address = kafka_cluster.bootstrap_servers
    numbers = Numbers(address, address, topic, partitions=6)
    consumer = numbers.consumer(commit_interval=0.1, request_timeout=2.0)
    async with NumberedMember(consumer, tasks=True) as member:
        async with numbers.trickling():
            await member.has(100)
            gone = coordinator_of(consumer, kafka_cluster)
            # A frozen one would keep whoever asks it for a long time.
            numbers.around = ",".join(
                broker.bootstrap_servers for broker in kafka_cluster.brokers if broker is not gone
            )
            with caplog.at_level(logging.DEBUG, "asyncrevoke"):
                caplog.clear()
                try:
                    await end(gone, way)
                    await until(
                        lambda: (
                            consumer.health().coordinator not in {gone.bootstrap_servers, None}
                            and (consumer.health().heartbeat_age or DEADLINE) < 1
                        ),
                        "another coordinator responds",
                    )
                    sent = numbers.sent
                    await member.has(sent + 100)
                    async with asyncio.timeout(DEADLINE):
                        while await numbers.committed() < sent:  # noqa: ASYNC110 - the broker's
                            await asyncio.sleep(0.1)
                finally:
                    if way == "frozen":
                        gone.resume()
                    await asyncio.to_thread(kafka_cluster.start)
            lines = [record.getMessage() for record in caplog.records]
            await member.has(numbers.sent + 50)
        await member.has_all(numbers)
    assert not member.lost
    assert await numbers.committed() == member.handled.total()
    # The others name it until they notice that it is gone: seconds, and thousands of round trips.
    assert sum("coordinator" in line for line in lines) < 60, lines
