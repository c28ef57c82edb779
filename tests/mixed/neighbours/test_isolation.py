"""Which records of transactions the members of each client return by default."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from mixed.neighbours.clients import ASSIGNORS, group_with, running_member

if TYPE_CHECKING:
    from pathlib import Path

    from mixed.group import Client

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

# The others return the records of aborted transactions, too.
COMMITTED_ONLY = ("librdkafka", "kafkajs", "platformatic")


def write(bootstrap_servers: str, topic: str) -> None:
    """Record 0 in an aborted transaction, record 1 in a committed one."""
    writer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    writer.init_transactions()
    for value, end in ((b"0", writer.abort_transaction), (b"1", writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(topic, value, partition=0)
        writer.flush()
        end()


@pytest.mark.parametrize("client", ["ours", *ASSIGNORS])
async def test_a_member_returns_these_records_of_transactions_by_default(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client
) -> None:
    await asyncio.to_thread(write, kafka_broker.bootstrap_servers, kafka_topic)
    group = group_with(client, tmp_path, kafka_broker, kafka_topic)
    assignor = ASSIGNORS.get(client, ("range",))[0]
    async with running_member(group, client, assignor) as member:
        async with asyncio.timeout(60):
            while 1 not in (seen.value for seen in member.seen):  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.1)
        returned = [seen.value for seen in member.seen]
    assert returned == ([1] if client in COMMITTED_ONLY else [0, 1])
