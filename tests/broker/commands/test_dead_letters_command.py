"""``asyncrevoke dead-letters`` on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from broker.handlers.test_handlers_on_a_real_broker import HandlerTopic
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from typer.testing import CliRunner

from asyncrevoke import Consumer, ConsumerConfig, Record
from asyncrevoke.cli.app import app
from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
from asyncrevoke.dead_letters.replay import Replay, ReplayOptions, ReplayResult
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.integrations.starlette import dashboard_routes

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def kafka(
    kafka_broker: RunningBroker,
    kafka_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> HandlerTopic:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASYNCREVOKE_BOOTSTRAP_SERVERS", kafka_broker.bootstrap_servers)
    return HandlerTopic(kafka_broker, kafka_topic)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["dead-letters", *arguments])


async def write(kafka: HandlerTopic, count: int) -> None:
    """So many dead letters of records 0, 1, 2, ..., every other one a KeyError."""
    await kafka.create(kafka.dead)
    config = ConsumerConfig(bootstrap_servers=kafka.address)
    async with ProducerWithOwnConnections(config) as producer:
        sent = Delivery()
        for number in range(count):
            place = kafka.topic, 0, number, 1_700_000_000_000 + number, 0
            record = Record(*place, b"k", b"%d" % number, (("n", b"1"),))
            error = KeyError("\x1b[2J") if number % 2 else ValueError("boom")
            letter = DeadLetter(record, error, 3)
            await producer.queue(
                kafka.dead, None, letter.key, letter.value, letter.headers, None, sent
            )
        await sent.wait()


async def written(kafka: HandlerTopic) -> list[Record]:
    async with DeadLetterTopic(kafka.topic, bootstrap_servers=kafka.address) as topic:
        return [letter.record async for letter in topic.letters()]


@pytest.mark.kafka_topic(partitions=1)
def test_dead_letters_are_listed_shown_and_replayed_once(kafka: HandlerTopic) -> None:
    asyncio.run(write(kafka, 5))
    listing: Any = json.loads(command("list", kafka.dead, "--json").stdout)
    assert [(row["error_type"], row["count"]) for row in listing["rows"]] == [
        ("KeyError", 2),
        ("ValueError", 3),
    ]
    shown = command("show", kafka.dead, "0:1")
    assert "\x1b" not in shown.stdout
    assert f"origin: {kafka.topic}-0 offset 1" in shown.stdout
    assert "\ntime: 2023-11-14T22:13:20.001+00:00\n" in shown.stdout
    assert "\nvalue: " not in shown.stdout
    assert "\nvalue: 1\n" in command("show", kafka.dead, "0:1", "--value").stdout
    assert command("show", kafka.dead, "--limit", "5").stderr == ""
    several = command("show", kafka.dead, "--limit", "4", "--json")
    assert len(several.stdout.splitlines()) == 4
    assert several.stderr == "more than 4 dead letters: --limit 40 shows further ones\n"

    for some in "list", "show", "replay":
        mistyped = command(some, kafka.dead, "--error", "ValueEror")
        assert mistyped.exit_code == 1, mistyped.output
        assert mistyped.stderr.splitlines()[-1] == (
            f"error: no dead letter of {kafka.dead} has the error ValueEror: "
            "ValueError (3), KeyError (2)"
        )
    dry = command("replay", kafka.dead, "--dry-run")
    assert f"5 would be sent (5 to {kafka.topic})" in dry.stdout
    first = command("replay", kafka.dead, "--error", "KeyError", "--json")
    assert (first.exit_code, json.loads(first.stdout)["sent"]) == (0, 2)
    assert first.stderr.startswith("new journal ")
    dry = command("replay", kafka.dead, "--dry-run")
    assert f"3 would be sent (3 to {kafka.topic})" in dry.stdout
    assert "2 sent before" in dry.stdout
    again = command("replay", kafka.dead)
    assert again.exit_code == 0, again.output
    assert "3 sent" in again.stdout
    assert "2 sent before" in again.stdout
    records = asyncio.run(written(kafka))
    assert [record.value for record in records] == [b"1", b"3", b"0", b"2", b"4"]
    assert records[0].headers == (
        ("n", b"1"),
        ("asyncrevoke-replays", b"1"),
        ("asyncrevoke-replayed-timestamp", b"1700000000001"),
    )
    assert all(abs(record.timestamp / 1000 - time.time()) < 60 for record in records)
    with open(f"{kafka.dead}.replay.jsonl", encoding="utf-8") as file:
        sent = [line for line in map(json.loads, file) if line["line"] == "sent"]
    assert [(line["offset"], line["to_topic"], line["to_offset"]) for line in sent] == [
        (offset, kafka.topic, number) for number, offset in enumerate((1, 3, 0, 2, 4))
    ]


@pytest.mark.kafka_topic(partitions=1)
def test_an_interrupted_replay_goes_on_without_sending_twice(
    kafka: HandlerTopic, tmp_path: Path
) -> None:
    async def interrupted() -> ReplayResult:
        await write(kafka, 500)
        async with DeadLetterTopic(kafka.dead, bootstrap_servers=kafka.address) as letters:
            replay = Replay(letters, ReplayOptions(rate=1000), lambda _now: replay.stop())
            return await replay.run()

    result = asyncio.run(interrupted())
    assert result.stopped
    assert 0 < result.sent < 500
    # As a process leaves it that was killed before the response.
    with (tmp_path / f"{kafka.dead}.replay.jsonl").open("ab") as file:
        file.write(b'{"line":"sending","partition":0,"offsets":[499]}\n')
    resumed = command("replay", kafka.dead)
    assert resumed.exit_code == 3, resumed.output
    assert "0:499: an interrupted replay may have sent it (--resend-in-doubt" in resumed.stdout
    assert command("replay", kafka.dead, "--resend-in-doubt").exit_code == 0
    records = asyncio.run(written(kafka))
    assert [int(record.value or b"") for record in records] == list(range(500))


@pytest.mark.kafka_topic(partitions=1)
def test_dead_letters_that_a_broker_rejects_are_sent_by_the_next_replay(
    kafka: HandlerTopic,
) -> None:
    asyncio.run(write(kafka, 3))
    small = f"{kafka.topic}.compacted"
    asyncio.run(kafka.create(small, settings={"max.message.bytes": "10"}))
    rejected = command("replay", kafka.dead, "--to", small)
    assert rejected.exit_code == 1, rejected.output
    assert "max.message.bytes" in rejected.output
    assert command("replay", kafka.dead).exit_code == 0
    assert len(asyncio.run(written(kafka))) == 3


@pytest.mark.kafka_topic(partitions=1)
def test_a_replay_keeps_original_timestamps_where_the_topic_does(kafka: HandlerTopic) -> None:
    asyncio.run(write(kafka, 3))
    original = ("--timestamps", "original")
    week = f"{kafka.topic}.week"
    asyncio.run(kafka.create(week, settings={"retention.ms": "604800000"}))
    refused = command("replay", kafka.dead, "--to", week, *original)
    assert refused.exit_code == 3, refused.output
    assert f"{week} would delete it at once (retention.ms=604800000)" in refused.stdout
    missing = command("replay", kafka.dead, "--to", f"{week}.nowhere", *original)
    assert missing.exit_code == 1, missing.output
    assert "the topic must exist" in missing.output
    assert command("replay", kafka.dead, *original).exit_code == 0
    records = asyncio.run(written(kafka))
    assert [record.timestamp for record in records] == [1_700_000_000_000 + n for n in range(3)]


def test_a_topic_that_does_not_exist_and_wrong_options_are_named(kafka: HandlerTopic) -> None:
    missing = command("list", f"{kafka.topic}.nowhere")
    assert missing.exit_code == 1
    assert "there is no topic" in missing.output
    for arguments in (
        ["list", "no topic"],
        ["list", "dlq", "--since", "yesterday"],
        ["show", "dlq", "1-2"],
        ["replay", "dlq", "--to", "dlq"],
        ["replay", "dlq", "--rate", "0"],
        ["replay", "dlq", "--timestamps", "mine"],
        ["replay", "dlq", "--limit", "0"],
    ):
        result = command(*arguments)
        assert result.exit_code == 2, (arguments, result.output)


@pytest.mark.kafka_topic(partitions=1)
def test_one_dead_letter_is_listed_in_the_singular(kafka: HandlerTopic) -> None:
    asyncio.run(write(kafka, 1))
    assert command("list", kafka.dead).stdout.endswith(f"\n1 dead letter in {kafka.dead}\n")


APP = """
from asyncrevoke import Consumer, HandlerContext, Record
consumer = Consumer(group_id="billing")

@consumer.handler("{topic}", dead_letter="{dead}")
async def bill(value: int, record: Record, context: HandlerContext) -> None:
    if value == 3:
        raise LookupError("still not")
    print("handled", *context.idempotency_key[1:], record.key, value, record.headers)
"""


@pytest.mark.kafka_topic(partitions=1)
def test_dead_letters_are_reprocessed_by_the_handlers_of_an_application(
    kafka: HandlerTopic, tmp_path: Path
) -> None:
    asyncio.run(write(kafka, 5))
    name = f"app_{kafka.topic.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(topic=kafka.topic, dead=kafka.dead))
    done = command("reprocess", kafka.dead, f"{name}:consumer", "--error", "KeyError")
    assert done.exit_code == 3, done.output
    assert "handled 0 1 b'k' 1 (('n', b'1'), ('asyncrevoke-replays', b'1'))" in done.stdout
    assert "2 dead letters: 1 error, 1 ok\n  0:3: LookupError: still not" in done.stdout
    assert asyncio.run(written(kafka)) == []
    mistyped = command("reprocess", kafka.dead, f"{name}:consumer", "--error", "ValueEror")
    assert mistyped.exit_code == 1, mistyped.output
    assert "has the error ValueEror: ValueError (3), KeyError (2)" in mistyped.stderr

    again = command("reprocess", kafka.dead, f"{name}:consumer", "--errors", "policy", "--json")
    assert again.exit_code == 3, again.output
    found = json.loads(again.stdout.splitlines()[-1])
    assert (found["selected"], found["outcomes"]) == (5, {"ok": 4, "dead_lettered": 1})
    listing: Any = json.loads(command("list", kafka.dead, "--json").stdout)
    assert ("LookupError", 1) in [(row["error_type"], row["count"]) for row in listing["rows"]]
    assert command("reprocess", kafka.dead, f"{name}:nothing").exit_code == 2


@pytest.mark.kafka_topic(partitions=1)
async def test_the_dashboard_lists_the_dead_letter_topic_of_a_handler(kafka: HandlerTopic) -> None:
    await write(kafka, 5)
    consumer = Consumer(
        bootstrap_servers=kafka.address, group_id=f"group-of-{kafka.topic}", group_instance_id="one"
    )
    app = Starlette(routes=dashboard_routes(consumer, dead_letter_values=True))

    @consumer.handler(kafka.topic, dead_letter=kafka.dead)
    async def bill(value: int) -> None: ...

    async with AsyncClient(transport=ASGITransport(app), base_url="http://page") as client:
        path = f"/dashboard/dead-letters?topic={kafka.dead}"
        listed = (await client.get(path)).json()["dead_letter"]
        assert ">5 dead letters" in listed
        assert f"{kafka.topic}-0 at 4" in listed
        chosen = (await client.get(f"{path}&error=KeyError")).json()["dead_letter"]
        assert ">2 dead letters of this origin and error" in chosen
        letter = (await client.get(f"{path}&place=0:1")).json()["dead_letter"]
        assert "<th scope=row>value</th><td>1</td>" in letter
        assert "\x1b" not in letter
        none = await client.get(f"{path}&place=0:99")
        assert (none.status_code, none.text) == (404, f"{kafka.dead}-0 has no record at offset 99")
