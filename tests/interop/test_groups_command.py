"""``asyncrevoke groups`` beside a KIP-848 group of librdkafka's."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import TopicPartition
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.observer import describe_group, list_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.groups.facts import GroupFacts

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

DEADLINE = 60.0


@contextmanager
def librdkafka(servers: str, topic: str, client_id: str, gate: threading.Event) -> Generator[None]:
    """A member in a thread, which gives nothing up before ``gate`` is open."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"group-of-{topic}",
            "group.protocol": "consumer",
            "client.id": client_id,
        }
    )
    stop = threading.Event()

    def revoked(consumer: Any, partitions: list[Any]) -> None:
        gate.wait(DEADLINE)
        consumer.incremental_unassign(partitions)

    def loop() -> None:
        consumer.subscribe([topic], on_revoke=revoked)
        while not stop.is_set():
            consumer.poll(0.05)
        consumer.close()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        gate.set()
        thread.join()


@pytest.mark.kafka_topic(partitions=4)
async def test_the_member_that_keeps_what_is_wanted_back_is_named(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    servers = kafka_broker.bootstrap_servers
    partitions = [TopicPartition(kafka_topic, number) for number in range(4)]

    async def told(condition: Callable[[GroupFacts], bool]) -> GroupFacts:
        config = ConsumerConfig(bootstrap_servers=servers)
        async with GroupsClient(config) as cluster, asyncio.timeout(DEADLINE):
            while True:
                await asyncio.sleep(0.1)
                if f"group-of-{kafka_topic}" not in {
                    group.group for group in await list_groups(cluster)
                }:
                    continue  # nobody has joined yet
                facts = await describe_group(cluster, f"group-of-{kafka_topic}")
                if condition(facts):
                    return facts

    gate, always = threading.Event(), threading.Event()
    always.set()
    with librdkafka(servers, kafka_topic, "slow", gate):
        first = await told(lambda facts: bool(facts.members) and facts.state == "Stable")
        assert (first.type, list(first.members[0].assigned)) == ("consumer", partitions)
        with librdkafka(servers, kafka_topic, "new", always):
            facts = await told(
                lambda facts: (
                    len(facts.members) == 2
                    and bool(facts.rebalance.held_up_by)
                    and any(member.waiting_for for member in facts.members)
                )
            )
            members = {member.client_id: member for member in facts.members}
            assert facts.rebalance.held_up_by == (members["slow"].member_id,)
            assert len(members["new"].waiting_for) == 2
            gate.set()
            facts = await told(lambda facts: not facts.rebalance.in_progress)
            assert sorted(len(member.assigned) for member in facts.members) == [2, 2]
