"""``asyncrevoke groups`` beside groups that are at work on a real broker."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from broker.records.numbered_records import NumberedMember, Numbers, until

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.kafka_topic(partitions=4),
]


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, 4)


async def ask(numbers: Numbers, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "groups", *arguments),
        *("--bootstrap-servers", numbers.bootstrap),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def facts(numbers: Numbers) -> Any:
    code, out, err = await ask(numbers, numbers.group, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def ids(member: NumberedMember) -> str:
    return member.consumer.group_metadata().member_id


class Delaying(NumberedMember):
    delaying = True

    async def _loop(self) -> None:
        async for batch in self.consumer:
            self.handled.update((r.partition, r.offset) for r in batch.records)
            if self.delaying and batch.to_be_revoked:
                assert self.consumer.delay_revoke(batch.to_be_revoked)


async def test_groups_command_names_the_member_that_has_not_released_partitions(
    numbers: Numbers,
) -> None:
    await numbers.send(20)
    async with Delaying(numbers.consumer(client_id="slow", client_rack="east")) as slow:
        await slow.has_all(numbers)
        async with NumberedMember(numbers.consumer(client_id="new")) as new:
            await until(lambda: new.consumer.health().state == "stable", "a second member")
            told = await facts(numbers)
            assert (told["type"], told["state"]) == ("classic", "Stable")
            assert told["assignor"] == "cooperative-sticky"
            assert told["rebalance"]["held_up_by"] == [ids(slow)]
            members = {member["client_id"]: member for member in told["members"]}
            assert members["slow"]["rack"] == "east"
            assert len(members["slow"]["assigned"]) == len(members["slow"]["releasing"]) == 2
            assert members["new"]["assigned"] == []
            assert {p["member_id"] for p in told["partitions"]} == {ids(slow)}

            slow.delaying = False
            await until(lambda: len(new.consumer.assignment()) == 2, "two partitions each")
            await until(lambda: slow.consumer.health().state == "stable", "a stable group")
            told = await facts(numbers)
            assert told["rebalance"]["says"] == "No rebalance is in progress."
            assert sorted(p["end"] for p in told["partitions"]) == [5, 5, 5, 5]
    told = await facts(numbers)
    assert (told["state"], told["members"]) == ("Empty", [])
    assert [p["lag"] for p in told["partitions"]] == [0, 0, 0, 0]


async def test_groups_command_says_that_brokers_do_not_report_whom_an_eager_rebalance_awaits(
    numbers: Numbers,
) -> None:
    async with Delaying(numbers.consumer(assignors=("range",))) as slow:
        await until(lambda: len(slow.consumer.assignment()) == 4, "all of it")
        async with NumberedMember(numbers.consumer(assignors=("range",))) as new:
            await until(
                lambda: slow.consumer.health().state == "draining", "the first member drains"
            )
            told = await facts(numbers)
            assert told["state"] == "PreparingRebalance"
            assert (told["rebalance"]["in_progress"], told["rebalance"]["known"]) == (True, False)
            slow.delaying = False
            await until(lambda: len(new.consumer.assignment()) == 2, "two partitions each")


async def test_groups_command_prints_a_list_and_a_table(numbers: Numbers) -> None:
    async with NumberedMember(numbers.consumer(client_id="only")) as member:
        await numbers.send(8)
        await member.has_all(numbers)
        code, out, err = await ask(numbers)
        assert (code, err) == (0, "")
        (line,) = [line for line in out.splitlines() if line.startswith(f"{numbers.group} ")]
        *facts_of_group, lag = line.split()
        assert facts_of_group == [numbers.group, "classic", "Stable", "1"]
        assert 0 <= int(lag) <= 8  # by what is committed already
        code, out, err = await ask(numbers, numbers.group)
        assert (code, err) == (0, "")
        assert f"{numbers.group}: classic, Stable, cooperative-sticky, coordinated by" in out
        assert f"{numbers.topic}-0..3" in out
        assert "No rebalance is in progress." in out


async def test_a_group_that_does_not_exist_is_an_error(numbers: Numbers) -> None:
    code, out, err = await ask(numbers, "no-such-group")
    assert (code, out) == (1, "")
    assert "there is no group 'no-such-group'" in err
