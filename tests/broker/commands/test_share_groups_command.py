"""``asyncrevoke groups`` beside share groups on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from broker.commands.share_member import ShareMember
from broker.commands.test_groups_command import ask
from broker.records.numbered_records import Numbers

from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
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
    # The default is the end of the log at the time of the first fetch.
    code, _, err = await ask(numbers, "configure", group, "share.auto.offset.reset=earliest")
    assert (code, err) == (0, "")
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
        code, out, err = await ask(
            numbers, "configure", "billing", "share.isolation.level=read_committed"
        )
        assert (code, out) == (0, "set share.isolation.level=read_committed\n")
        assert err.startswith("share groups are off in this cluster; this enables them: kafka-")


async def test_options_are_set_before_the_group_exists_all_or_none(numbers: Numbers) -> None:
    code, out, err = await ask(
        numbers,
        *("configure", numbers.group),
        *("share.auto.offset.reset=earliest", "share.isolation.level=read_committed"),
    )
    assert (code, err) == (0, "")
    assert out == "set share.auto.offset.reset=earliest\nset share.isolation.level=read_committed\n"
    code, out, err = await ask(
        numbers, "configure", numbers.group, "share.delivery.count.limit=7", "share.nothing=1"
    )
    assert (code, out) == (1, "")
    assert "invalid_config: Unknown group config name: share.nothing" in err
    code, out, err = await ask(
        numbers, "configure", numbers.group, "--unset", "share.isolation.level"
    )
    assert (code, out, err) == (0, "unset share.isolation.level\n", "")

    # Brokers learn of it from the controller.
    expected = {("share.auto.offset.reset", "earliest")}
    while True:
        code, out, err = await ask(numbers, "configure", numbers.group, "--json")
        assert (code, err) == (0, "")
        options = json.loads(out)
        own = {(each["name"], each["value"]) for each in options if each["source"] == "group"}
        if own == expected:
            break
    assert {each["source"] for each in options} >= {"group", "default"}
    code, out, err = await ask(numbers, "configure", numbers.group)
    (line,) = [line for line in out.splitlines() if "auto.offset" in line]
    assert line.split() == ["share.auto.offset.reset", "earliest", "group"]


async def test_the_right_that_a_user_lacks_is_named() -> None:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True)
    with KafkaBroker(security=security) as broker:
        address = broker.bootstrap_servers
        numbers = Numbers(address, address, "orders", 1)
        login = (
            *("--security-protocol", "SASL_PLAINTEXT"),
            *("--sasl-username", "alice", "--sasl-password", security.users["alice"]),
        )
        for arguments, right in (
            (("billing",), "DESCRIBE"),
            (("configure", "billing"), "DESCRIBE_CONFIGS"),
            (("configure", "billing", "share.isolation.level=read_committed"), "ALTER_CONFIGS"),
        ):
            code, out, err = await ask(numbers, *arguments, *login)
            assert (code, out) == (1, "")
            assert f"not authorized; grant {right} to this user" in err
