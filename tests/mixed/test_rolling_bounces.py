"""Groups that become ours, or cooperative, member by member, in two rolling restarts (KIP-429)."""

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

MEMBERS = 3


@pytest.fixture
def group(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> MixedGroup:
    return MixedGroup(tmp_path, kafka_broker.bootstrap_servers, kafka_topic)


async def test_an_aiokafka_group_is_upgraded_without_losing_or_repeating_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        assert await group.upgrade(MEMBERS, "aiokafka", "roundrobin") == 0


@pytest.mark.parametrize("framework", ["faststream", "kstreams"])
async def test_a_group_of_a_framework_on_aiokafka_is_upgraded_without_losing_or_repeating_a_record(
    group: MixedGroup, framework: Client
) -> None:
    async with group:
        assert await group.upgrade(MEMBERS, framework, "roundrobin") == 0


async def test_a_range_group_of_asyncrevoke_is_upgraded_without_losing_or_repeating_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        assert await group.upgrade(MEMBERS, "ours", "range") == 0


async def test_a_range_group_of_java_is_upgraded_without_losing_a_record(group: MixedGroup) -> None:
    # What a VerifiableConsumer reads and does not commit, because SIGTERM comes in between, is
    # read again: it says so itself, and nothing else may be.
    async with group:
        await group.upgrade(MEMBERS, "java", "range")


async def test_a_sticky_group_of_aiokafka_is_upgraded_without_losing_or_repeating_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        assert await group.upgrade(MEMBERS, "aiokafka", "sticky") == 0


async def test_an_aiokafka_group_of_range_and_sticky_is_upgraded_losing_and_repeating_no_record(
    group: MixedGroup,
) -> None:
    async with group:
        assert await group.upgrade(MEMBERS, "aiokafka", "range", "sticky") == 0


async def test_a_sticky_group_of_java_is_upgraded_without_losing_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        await group.upgrade(MEMBERS, "java", "sticky")


async def test_a_java_group_of_range_and_sticky_is_upgraded_without_losing_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        await group.upgrade(MEMBERS, "java", "range", "sticky")


async def test_a_java_group_of_default_assignors_is_replaced_in_one_round_without_losing_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        for _ in range(MEMBERS):
            await group.join("java", "range", "cooperative-sticky")
        assert (await group.until_balanced()).assignor == "range"
        assert await group.bounce("cooperative-sticky") == ["cooperative-sticky"] * MEMBERS
        assert {member.client for member in group.members} == {"ours"}
        await group.ends_with_each_record_consumed_once()


async def test_a_cooperative_group_of_librdkafka_is_replaced_in_one_round_without_losing_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        for _ in range(MEMBERS):
            await group.join("librdkafka", "cooperative-sticky")
        await group.until_balanced()
        assert await group.bounce("cooperative-sticky") == ["cooperative-sticky"] * MEMBERS
        assert {member.client for member in group.members} == {"ours"}
        await group.ends_with_each_record_consumed_once()


async def test_a_range_group_of_librdkafka_is_upgraded_without_losing_a_record(
    group: MixedGroup,
) -> None:
    async with group:
        await group.upgrade(MEMBERS, "librdkafka", "range")


@pytest.mark.parametrize("client", ["java", "aiokafka"])
async def test_a_sticky_group_keeps_partitions_where_they_are_whoever_leads_it(
    group: MixedGroup, client: Client
) -> None:
    async with group:
        first = await group.join("ours", "sticky")
        await group.until_balanced()
        second = await group.join(client, "sticky")
        await group.until_balanced()
        kept = set(first.owned), set(second.owned)
        await group.join("ours", "sticky")
        await group.until_balanced()
        # The leader, the first member, takes one from each.
        assert first.owned < kept[0]
        assert second.owned < kept[1]
        kept = set(first.owned), set(second.owned)
        await group.leave(first)  # now another member leads
        await group.until_balanced()
        assert second.owned > kept[1]
        await group.ends_with_each_record_consumed_once()
