"""Groups of this library and of each other client, with each assignor that both have.

Whoever joins first leads. :meth:`MixedGroup.until_balanced` also finds an assignment that a member
cannot decode: the coordinator lists partitions for it that it does not say it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mixed.group import PARTITIONS, Client
from mixed.neighbours.clients import ASSIGNORS, group_with

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(400),
    pytest.mark.kafka_topic(partitions=PARTITIONS),
]

MEMBERS = 2

CASES = [(client, assignor) for client, assignors in ASSIGNORS.items() for assignor in assignors]
# tests/mixed/test_rolling_bounces.py has those of Java and librdkafka.
REPLACED = [
    (client, assignor) for client, assignor in CASES if client not in ("java", "librdkafka")
]

each_client_and_assignor = pytest.mark.parametrize(("client", "assignor"), CASES)


@each_client_and_assignor
async def test_members_join_leave_and_crash_while_asyncrevoke_leads(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client, assignor: str
) -> None:
    async with group_with(client, tmp_path, kafka_broker, kafka_topic) as group:
        await group.join("ours", assignor)
        await group.until_balanced()
        leaves = await group.join(client, assignor)
        await group.until_balanced()
        crashes = await group.join(client, assignor)
        assert (await group.until_balanced()).assignor == assignor
        await group.crash(crashes)
        await group.until_balanced()
        await group.join("ours", assignor)
        await group.until_balanced()
        await group.leave(leaves)
        await group.until_balanced()
        await group.ends_with_each_record_consumed_once()


@each_client_and_assignor
async def test_members_join_leave_and_crash_while_the_other_client_leads(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client, assignor: str
) -> None:
    async with group_with(client, tmp_path, kafka_broker, kafka_topic) as group:
        leads = await group.join(client, assignor)
        await group.until_balanced()
        crashes = await group.join("ours", assignor)
        await group.until_balanced()
        await group.join(client, assignor)
        assert (await group.until_balanced()).assignor == assignor
        await group.crash(crashes)
        await group.until_balanced()
        await group.join("ours", assignor)
        await group.until_balanced()
        await group.leave(leads)
        await group.until_balanced()
        await group.ends_with_each_record_consumed_once()


@pytest.mark.parametrize(("client", "assignor"), REPLACED)
async def test_a_group_of_the_other_client_is_replaced_by_asyncrevoke_member_by_member(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client, assignor: str
) -> None:
    async with group_with(client, tmp_path, kafka_broker, kafka_topic) as group:
        if assignor != "cooperative-sticky":
            await group.upgrade(MEMBERS, client, assignor)
            return
        for _ in range(MEMBERS):
            await group.join(client, assignor)
        await group.until_balanced()
        assert await group.bounce(assignor) == [assignor] * MEMBERS
        await group.ends_with_each_record_consumed_once()


async def test_a_group_of_kafkajs_is_replaced_once_its_assigner_has_the_name_that_others_use(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    async with group_with("kafkajs", tmp_path, kafka_broker, kafka_topic) as group:
        for _ in range(MEMBERS):
            await group.join("kafkajs", "RoundRobinAssigner")
        await group.until_balanced()
        rejected = await group.join("ours", "roundrobin")
        assert "InconsistentGroupError" in await group.ends_by_itself(rejected)
        await group.until_balanced()
        used = await group.bounce("RoundRobinAssigner", "roundrobin", client="kafkajs")
        assert used == ["RoundRobinAssigner"] * MEMBERS
        assert await group.bounce("roundrobin", "cooperative-sticky") == ["roundrobin"] * MEMBERS
        assert await group.bounce("cooperative-sticky") == ["cooperative-sticky"] * MEMBERS
        await group.ends_with_each_record_consumed_once()
