"""``asyncrevoke groups`` beside share groups on a real broker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from broker.commands.share_member import ShareMember
from broker.records.numbered_records import Numbers, until
from typer.testing import CliRunner

from asyncrevoke.audit.offsets import read_group_offsets
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.cli.app import app
from asyncrevoke.cli.journal import _committed as committed_for_journal
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.changes.share_offsets import set_start_offsets
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import ShareGroupError
from asyncrevoke.client.groups.observer import committed_offsets, describe_group
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.web.dashboard.group_watch import GroupWatch
from asyncrevoke.web.dashboard.history import History

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


async def ask(numbers: Numbers, *arguments: str) -> tuple[int, str, str]:
    words = ["groups", *arguments, "--bootstrap-servers", numbers.bootstrap]
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


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

        # A broker creates a share group when its first offset is set.
        broker.create_topic("orders", 1)
        (admin_address,) = broker.admin_addresses
        async with GroupsClient(ConsumerConfig(bootstrap_servers=admin_address)) as brokers:
            await set_start_offsets(brokers, "billing", {TopicPartition("orders", 0): 0})
        broker.allow("alice", "group", "billing", ["describe"])
        broker.allow("alice", "topic", "orders", ["describe"])
        change = ("reset-offsets", "billing", "--to", "latest", "--apply")
        delete = ("delete-offsets", "billing", "orders", "--apply")
        _, _, err = await ask(numbers, *change, *login)
        assert "not authorized; grant READ on the group and" in err
        _, _, err = await ask(numbers, *delete, *login)
        assert "not authorized; grant DELETE on the group and READ" in err
        broker.allow("alice", "group", "billing", ["read", "delete"])
        _, _, err = await ask(numbers, *change, *login)
        assert "offsets of orders-0 (topic_authorization_failed: " in err
        _, _, err = await ask(numbers, *delete, *login)
        assert "offsets of orders (topic_authorization_failed: " in err


async def test_offsets_of_an_empty_share_group_are_reset_and_deleted(numbers: Numbers) -> None:
    group, topic = numbers.group, numbers.topic
    await numbers.send(10)
    reset = ("reset-offsets", group, "--apply", "--to")
    assert (await ask(numbers, "configure", group, "share.auto.offset.reset=earliest"))[0] == 0
    async with ShareMember(numbers.bootstrap, group, topic, "only") as member:
        await member.receive(accept=10)
        code, out, _ = await ask(numbers, "reset-offsets", group, "--to", "earliest")
        assert code == 0
        assert "nothing was changed: stop 1 member, and add --apply" in out
        for change in ((*reset, "earliest"), ("delete-offsets", group, topic, "--apply")):
            code, out, err = await ask(numbers, *change)
            assert (code, out) == (1, "")
            assert f"group '{group}' has members: stop them first" in err

    code, out, err = await ask(numbers, *reset, "3")
    assert (code, err) == (0, "")
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["3", "3"]
    assert await starts_and_lags(numbers) == [(3, 2), (3, 2)]
    code, _, err = await ask(numbers, *reset, "6")
    assert (code, "has the offsets 0 to 5, and not 6" in err) == (1, True)
    assert (
        await ask(numbers, "reset-offsets", group, f"{topic}:1", "--to", "earliest", "--apply")
    )[0] == 0
    assert await starts_and_lags(numbers) == [(3, 2), (0, 5)]
    assert (await ask(numbers, *reset, "2999-01-01"))[0] == 0
    assert await starts_and_lags(numbers) == [(5, 0), (5, 0)]

    code, out, err = await ask(numbers, "delete-offsets", group, topic)
    assert (code, err) == (0, "")
    assert "nothing was deleted: add --apply" in out
    code, out, err = await ask(numbers, "delete-offsets", group, topic, "--apply")
    assert (code, err) == (0, "")
    assert f"deleted for group {group}" in out
    assert await starts_and_lags(numbers) == []
    code, _, err = await ask(numbers, "delete-offsets", group, topic, "--apply")
    assert (code, f"has no offsets of {topic}" in err) == (1, True)


async def starts_and_lags(numbers: Numbers) -> list[tuple[int | None, int | None]]:
    code, out, err = await ask(numbers, numbers.group, "--json")
    assert (code, err) == (0, "")
    return [(each["start"], each["lag"]) for each in json.loads(out)["partitions"]]


async def test_commands_about_owners_say_that_it_is_a_share_group(numbers: Numbers) -> None:
    group, topic = numbers.group, numbers.topic
    config = ConsumerConfig(bootstrap_servers=numbers.bootstrap)
    says = f"group '{group}' is a share group, which commits no offsets"
    async with GroupsClient(config) as brokers:
        # A broker creates a share group when its first offset is set.
        await set_start_offsets(brokers, group, {TopicPartition(topic, 0): 0})
        with pytest.raises(ShareGroupError, match=says):
            await describe_group(brokers, group)  # of a handover
    # Of an audit, and of collected journals: those below which nothing is delivered again.
    known = await read_group_offsets(config, group, topic)
    assert (known.offsets, known.isolation_level) == ({0: 0}, "read_uncommitted")
    assert await committed_for_journal(config, group) == {TopicPartition(topic, 0): 0}

    history = History(group)
    watch = asyncio.create_task(GroupWatch(config, group, history).run())
    await until(lambda: bool(history.notes(history.clock(), 1)), "a note on the page")
    watch.cancel()
    (note,) = history.notes(history.clock(), 9)
    assert note.text == "Empty"
    (place,) = history.places[group]
    assert (place.partition, place.owner, place.committed) == (TopicPartition(topic, 0), "", 0)
