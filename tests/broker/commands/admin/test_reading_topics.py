"""``asyncrevoke topics read`` on a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner

from asyncrevoke import Producer
from asyncrevoke.cli.app import app

if TYPE_CHECKING:
    from typer.testing import Result

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

START = 1_700_000_000_000


class Reading:
    """A topic with two partitions, whose record ``n`` is offset ``n // 2`` of partition ``n % 2``,
    with one second from each to the next."""

    def __init__(self, broker: RunningBroker) -> None:
        self.servers = broker.bootstrap_servers
        self.topic = f"read-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, 2)

    async def write(self, *values: bytes | None) -> None:
        async with Producer(bootstrap_servers=self.servers) as producer:
            for n, value in enumerate(values):
                await producer.publish(
                    self.topic,
                    value,
                    key=b"\xff" if n else "c1",
                    headers=[("trace", b"\x1b[2J")] if n == 0 else (),
                    partition=n % 2,
                    timestamp=START + 1000 * n,
                )

    def words(self, *options: str) -> list[str]:
        return ["topics", "read", self.topic, *options, "--bootstrap-servers", self.servers]

    def read(self, *options: str) -> Result:
        return CliRunner().invoke(app, self.words(*options))

    def offsets(self, *options: str) -> list[tuple[int, int]]:
        result = self.read(*options, "--json")
        assert result.exit_code == 0, result.output
        found = [json.loads(line) for line in result.stdout.splitlines()]
        return sorted((record["partition"], record["offset"]) for record in found)


@pytest.fixture
def reading(kafka_broker: RunningBroker) -> Reading:
    return Reading(kafka_broker)


def test_records_are_shown_as_text_or_base64(reading: Reading) -> None:
    asyncio.run(reading.write("\u00e4\x1b".encode(), b"\xfe\xff", None))
    shown = reading.read()
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    first = lines.index("0:0 2023-11-14T22:13:20.000+00:00 c1 \u00e4\\x1b")
    assert lines[first + 1] == "  trace: \\x1b[2J"
    assert "1:0 2023-11-14T22:13:21.000+00:00 base64:/w== base64:/v8=" in lines
    assert "0:1 2023-11-14T22:13:22.000+00:00 base64:/w== null" in lines
    records = [json.loads(line) for line in reading.read("--json").stdout.splitlines()]
    by_place = {(each.pop("partition"), each.pop("offset")): each for each in records}
    assert by_place[0, 0] == {
        "topic": reading.topic,
        "timestamp": START,
        "key": "c1",
        "value": "\u00e4\x1b",
        "headers": [["trace", "\x1b[2J"]],
    }
    assert (by_place[1, 0]["key"], by_place[1, 0]["value"]) == (
        {"base64": "/w=="},
        {"base64": "/v8="},
    )
    assert by_place[0, 1]["value"] is None


def test_ranges_partitions_and_numbers_of_records_are_selected(reading: Reading) -> None:
    asyncio.run(reading.write(*[b"%d" % n for n in range(10)]))
    at = "2023-11-14T22:13:2{}+00:00".format
    assert reading.offsets("--from", at(4), "--to", at(6)) == [(0, 2), (1, 2)]
    assert reading.offsets("--from", "3", "--partition", "1") == [(1, 3), (1, 4)]
    assert reading.offsets("--from", '{"0": 2, "1": 1}', "--to", "2") == [(1, 1)]
    assert reading.offsets("--from", "latest") == []
    some = reading.read("--max-records", "3")
    assert len(some.stdout.splitlines()) == 4, "one of them has a header"
    assert some.stderr == "stopped after 3 records: --max-records shows more\n"
    assert reading.read("--max-records", "10").stderr == ""
    for wrong in (("--partition", "7"), ("--from", "soon"), ("--follow", "--to", "now")):
        refused = reading.read(*wrong)
        assert refused.exit_code == 2, refused.output
        assert refused.stderr.startswith("error: ")
    assert "error: --from 4 is after --to 2" in reading.read("--from", "4", "--to", "2").stderr


def test_records_of_aborted_transactions_are_left_out(reading: Reading) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=reading.servers, transactional_id=reading.topic
        ) as producer:
            for end in producer.abort_transaction, producer.commit_transaction:
                await producer.begin_transaction()
                await producer.send_and_wait(reading.topic, b"paid", partition=0)
                await end()

    asyncio.run(write())
    assert reading.offsets() == [(0, 2)], "after a record that is aborted, and its marker"
    assert reading.offsets("--read-uncommitted") == [(0, 0), (0, 2)]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_further_records_are_shown_until_ctrl_c(reading: Reading) -> None:
    asyncio.run(reading.write(b"old"))
    command = [sys.executable, "-m", "asyncrevoke", *reading.words("--from", "latest", "--follow")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        # It may not have looked up the end yet: write until it shows one.
        reader = asyncio.run(_first_line(reading, process))
        assert b" new" in reader
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")


async def _first_line(reading: Reading, process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
    while not line.done():
        await reading.write(b"new")
        await asyncio.wait([line], timeout=0.5)
    return line.result()
