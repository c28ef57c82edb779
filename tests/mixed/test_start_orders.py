"""One group of all clients that can be in it, in changing order, with each of them as leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mixed.group import PARTITIONS, Client, MixedGroup

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(400),
    pytest.mark.kafka_topic(partitions=PARTITIONS),
]

ALL: tuple[Client, ...] = ("ours", "java", "aiokafka", "librdkafka", "kafka-python")
# aiokafka has no cooperative assignor.
COOPERATIVE: tuple[Client, ...] = ("ours", "java", "librdkafka", "kafka-python")
CASES = [
    ("range", ALL, 0),
    ("range", ALL, 1),
    ("roundrobin", ALL, 0),
    ("roundrobin", ALL, 2),
    ("cooperative-sticky", COOPERATIVE, 0),
    ("cooperative-sticky", COOPERATIVE, 1),
    ("cooperative-sticky", COOPERATIVE, 2),
    ("cooperative-sticky", COOPERATIVE, 3),
]


@pytest.mark.parametrize(
    ("assignor", "clients", "first"),
    CASES,
    ids=[f"{assignor}, {clients[first]} first" for assignor, clients, first in CASES],
)
async def test_members_of_all_clients_share_a_group_and_consume_each_record_once(
    tmp_path: Path,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    assignor: str,
    clients: tuple[Client, ...],
    first: int,
) -> None:
    # Who joins first leads; when it leaves, another client does.
    order = (*clients[first:], *clients[:first])
    async with MixedGroup(tmp_path, kafka_broker.bootstrap_servers, kafka_topic) as group:
        for client in order:
            await group.join(client, assignor)
            facts = await group.until_balanced()
            assert facts.assignor == assignor
        for member in list(group.members)[:-1]:
            await group.leave(member)
            await group.until_balanced()
        await group.ends_with_each_record_consumed_once()
