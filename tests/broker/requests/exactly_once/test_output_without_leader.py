"""Results for a partition that has no leader: they wait, and the log says for what."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.handlers.test_handlers_on_a_real_broker import until
from broker.requests.read_committed import PARTITIONS, read_below_stable_offsets
from broker.topics.partition_replicas import replicas

from asyncrevoke import Consumer, Message, Producer, Record

if TYPE_CHECKING:
    from asyncrevoke.broker import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


async def test_results_wait_for_the_leader_of_their_partition_and_are_published_once(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"waiting-{uuid.uuid4().hex[:8]}"
    output = f"{topic}-out"
    kafka_cluster.create_topic(topic, PARTITIONS, replication=3)
    kafka_cluster.create_topic(output, PARTITIONS, replication=1)
    servers = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        await asyncio.gather(
            *(producer.publish(topic, b"%d" % n, key=b"%d" % n) for n in range(60))
        )
    led_by = replicas(kafka_cluster, output).leader
    (stopped,) = (each for each in kafka_cluster.brokers if each.node_id == led_by)
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        processing="exactly_once",
        transaction_timeout=5.0,
    )
    handled: Counter[bytes] = Counter()

    @consumer.handler(topic, publish_to=output)
    async def copy(record: Record) -> Message:
        value = record.value or b""
        handled[value] += 1
        return Message(value, partition=int(value) % PARTITIONS)

    await asyncio.to_thread(stopped.stop)
    try:
        async with consumer:
            await until(lambda: len(handled) == 60)
            await until(lambda: f"{output}-0 has no leader" in caplog.text)
            await asyncio.to_thread(stopped.start)
            each_once = Counter(b"%d" % number for number in range(60))
            await until(lambda: read_below_stable_offsets(kafka_cluster, output) == each_once)
    finally:
        await asyncio.to_thread(kafka_cluster.start)
    assert max(handled.values()) == 1
