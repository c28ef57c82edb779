"""Groups whose coordinator assigns (KIP-848), of all clients that speak it, in changing order, and
beside members that do not."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from mixed.group import PARTITIONS, Client, MixedGroup

from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

ALL: tuple[Client, ...] = ("ours", "java", "librdkafka", "ours")
# Kafka's 5 s would make a step of each test last a quarter of a minute.
PROPERTIES = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(quick=True, properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture
def group(tmp_path: Path, broker: KafkaBroker) -> MixedGroup:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, PARTITIONS)
    return MixedGroup(tmp_path, broker.bootstrap_servers, topic)


@pytest.mark.parametrize("first", range(3), ids=[f"{client} first" for client in ALL[:3]])
async def test_members_of_all_clients_share_a_group_and_consume_each_record_once(
    group: MixedGroup, first: int
) -> None:
    async with group:
        used = await group.join_and_leave((*ALL[first:], *ALL[:first]))
        assert used == ["uniform"] * len(ALL)
        await group.ends_with_each_record_consumed_once()


@pytest.mark.parametrize(
    ("client", "assignor"),
    [("java", "range"), ("java", "cooperative-sticky"), ("librdkafka", "range")],
)
async def test_a_classic_group_of_another_client_is_converted_by_asyncrevoke_and_back(
    group: MixedGroup, client: Client, assignor: str
) -> None:
    async with group:
        await group.join(client, assignor)
        await group.join(client, assignor)
        assert (await group.until_balanced()).assignor == assignor
        ours = await group.join("ours")
        assert (await group.until_balanced()).assignor == "uniform"
        await group.join("ours", "cooperative-sticky", *({assignor} - {"cooperative-sticky"}))
        await group.until_balanced()
        await group.leave(ours)
        assert (await group.until_balanced()).assignor == assignor
        await group.ends_with_each_record_consumed_once()


async def test_classic_members_of_asyncrevoke_and_kip_848_members_of_java_share_a_group(
    group: MixedGroup,
) -> None:
    async with group:
        await group.join("ours", "cooperative-sticky")
        await group.until_balanced()
        java = await group.join("java")
        await group.until_balanced()
        await group.join("ours", "cooperative-sticky")
        await group.until_balanced()
        await group.leave(java)
        assert (await group.until_balanced()).assignor == "cooperative-sticky"
        await group.ends_with_each_record_consumed_once()


async def test_a_group_that_the_broker_does_not_convert_continues_without_asyncrevoke(
    group: MixedGroup,
) -> None:
    # It takes librdkafka's cooperative-sticky for a custom assignor.
    async with group:
        for _ in range(2):
            await group.join("librdkafka", "cooperative-sticky")
            await group.until_balanced()
        rejected = await group.join("ours")
        assert "InconsistentGroupError" in await group.ends_by_itself(rejected)
        assert (await group.until_balanced()).assignor == "cooperative-sticky"
        await group.ends_with_each_record_consumed_once()
