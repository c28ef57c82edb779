"""``asyncrevoke groups`` beside share groups on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from broker.commands.share_member import ShareMember
from broker.commands.test_groups_command import ask
from broker.records.numbered_records import Numbers
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource
from kio.static.primitive import i8

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import GROUP, IncrementalAlterConfigsRequest
from asyncrevoke.client.groups.errors import ShareGroupError
from asyncrevoke.client.groups.observer import committed_offsets

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=2),
]


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, 2)


async def test_a_share_group_is_listed_and_described(numbers: Numbers) -> None:
    group = numbers.group
    await numbers.send(10)
    await begin_at_the_first_offset(numbers)
    async with ShareMember(numbers.bootstrap, group, numbers.topic, "only") as member:
        await member.receive(accept=6, release=4)
        code, out, err = await ask(numbers)
        assert (code, err) == (0, "")
        (line,) = [line for line in out.splitlines() if line.startswith(f"{group} ")]
        assert line.split() == [group, "share", "Stable", "1", "4"]

        code, out, err = await ask(numbers, group)
        assert (code, err) == (0, "")
        assert f"{group}: share, Stable, epoch" in out
        assert f"{numbers.topic}-0..1" in out
        assert "lag: 4\n" in out

        async with GroupsClient(ConsumerConfig(bootstrap_servers=numbers.bootstrap)) as brokers:
            with pytest.raises(ShareGroupError):
                await committed_offsets(brokers, group)
        code, out, err = await ask(numbers, group, "--observe", "10")
        assert (code, out) == (1, "")
        assert "is a share group" in err
    code, out, err = await ask(numbers, group, "--json")
    facts = json.loads(out)
    assert (facts["type"], facts["state"], facts["members"]) == ("share", "Empty", [])
    assert sum(partition["lag"] for partition in facts["partitions"]) == 4


async def begin_at_the_first_offset(numbers: Numbers) -> None:
    """The default is the end of the log at the time of the first fetch."""
    option = AlterableConfig(
        name="share.auto.offset.reset", config_operation=i8(0), value="earliest"
    )
    resource = AlterConfigsResource(
        resource_type=GROUP, resource_name=numbers.group, configs=(option,)
    )
    async with GroupsClient(ConsumerConfig(bootstrap_servers=numbers.bootstrap)) as brokers:
        node = await brokers.coordinator(numbers.group)
        response = await brokers.ask(node, IncrementalAlterConfigsRequest(resources=(resource,)))
    assert [found.error_code for found in response.responses] == [ErrorCode.none]


async def test_a_cluster_without_share_groups_has_none() -> None:
    with KafkaBroker(features={"share.version": 0}) as broker:
        address = broker.bootstrap_servers
        numbers = Numbers(address, address, "orders", 1)
        assert (await ask(numbers))[:2] == (0, "there are no groups\n")
        code, _, err = await ask(numbers, "billing")
        assert (code, err) == (
            1,
            "error: there is no group 'billing'; asyncrevoke groups lists them\n",
        )
