"""``asyncrevoke groups lag``, ``reset-offsets`` and ``delete`` on a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from broker.commands.test_groups_command import ask
from broker.records.numbered_records import NumberedMember, Numbers, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.kafka_topic(partitions=2),
]


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, 2)


async def committed(numbers: Numbers) -> list[int | None]:
    code, out, err = await ask(numbers, numbers.group, "--json")
    assert (code, err) == (0, "")
    return [each["committed"] for each in json.loads(out)["partitions"]]


@pytest.mark.timeout(180)  # 13 processes start one after another
@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.variant)]
)
async def test_offsets_of_a_group_are_reset_when_its_members_have_left(
    numbers: Numbers, protocol: Literal["classic", "consumer"]
) -> None:
    group, topic = numbers.group, numbers.topic
    await numbers.send(10)
    reset = ("reset-offsets", group, "--to")
    async with NumberedMember(numbers.consumer(group_protocol=protocol)) as member:
        await member.has_all(numbers)
        await member.consumer.commit()
        code, out, err = await ask(numbers, *reset, "earliest")
        assert (code, err) == (0, "")
        assert "nothing was changed: stop 1 member, and add --apply" in out
        empty = f"{group}-empty"
        begins = ("reset-offsets", empty, topic, "--to", "latest", "--apply")
        assert (await ask(numbers, *begins))[0] == 0
        for change in ((*reset, "earliest", "--apply"), ("delete", empty, group, "--apply")):
            code, out, err = await ask(numbers, *change)
            assert (code, out) == (1, "")
            assert f"group '{group}' has members: stop them first" in err

    assert (await ask(numbers, "delete", empty))[0] == 0  # it was not deleted with the other
    assert sum(offset or 0 for offset in await committed(numbers)) == 10
    code, out, err = await ask(numbers, *reset, "earliest", "--dry-run")
    assert (code, "nothing was changed: add --apply" in out) == (0, True), err
    code, out, err = await ask(numbers, *reset, "earliest", "--apply", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["applied"] is True
    assert [move["after"] for move in told["plan"]["moves"]] == [0, 0]
    assert await committed(numbers) == [0, 0]
    async with NumberedMember(numbers.consumer(group_protocol=protocol)) as member:
        await member.has_all(numbers)

    code, _, err = await ask(numbers, "reset-offsets", group, f"{topic}:1", "--to", "6")
    assert (code, "has the offsets 0 to 5, and not 6" in err) == (1, True)
    code, out, err = await ask(numbers, "delete", group, "--apply")
    assert (code, err) == (0, "")
    assert out.startswith(f"deleted {group}: ")
    code, _, err = await ask(numbers, group)
    assert (code, f"there is no group '{group}'" in err) == (1, True)


async def test_a_new_group_begins_at_the_offsets_that_it_was_given(numbers: Numbers) -> None:
    await numbers.send(10)
    name = ("reset-offsets", numbers.group, numbers.topic, "--to", "3")
    code, out, err = await ask(numbers, *name)
    assert (code, err) == (0, "")
    assert f"there is no group {numbers.group} yet; nothing was changed" in out
    assert (await ask(numbers, *name, "--apply"))[0] == 0
    async with NumberedMember(numbers.consumer(auto_offset_reset="error")) as member:
        await until(lambda: len(member.handled) == 4, "four records")
        assert set(member.handled) == {(p, offset) for p in (0, 1) for offset in (3, 4)}


@asynccontextmanager
async def watching(numbers: Numbers, *arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "groups", "lag", *arguments),
        *("--bootstrap-servers", numbers.bootstrap),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_lag_is_watched_until_ctrl_c(numbers: Numbers) -> None:
    await numbers.send(10)
    assert (await ask(numbers, "reset-offsets", numbers.group, numbers.topic, "--to", "1",
                      "--apply"))[0] == 0  # fmt: skip
    async with watching(numbers, numbers.group, "--watch", "0.5", "--json") as process:
        assert process.stdout is not None
        first = json.loads(await process.stdout.readline())
        (lag,) = first["lags"]
        assert (lag["topic"], lag["lag"], lag["arriving"]) == (numbers.topic, 8, None)
        await numbers.send(10)
        while lag["lag"] != 18:
            (lag,) = json.loads(await process.stdout.readline())["lags"]
        assert lag["committing"] == 0
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""

    code, out, err = await ask(numbers, "lag", numbers.group)
    assert (code, err) == (0, "")
    assert out.split()[:4] == ["group", "topic", "partitions", "lag"]
    assert out.split()[5:9] == [numbers.group, numbers.topic, "2", "18"]
    code, _, err = await ask(numbers, "lag", "no-such-group")
    assert (code, "there is no group 'no-such-group'" in err) == (1, True)
