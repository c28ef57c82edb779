"""``asyncrevoke send`` on a real broker."""

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
from typer.testing import CliRunner

from asyncrevoke import Record, TopicReader
from asyncrevoke.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class Sending:
    """A topic of a broker, with four partitions."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.topic = f"sent-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, 4)

    def words(self, *options: str, topic: str | None = None) -> list[str]:
        servers = self.broker.bootstrap_servers
        return ["send", topic or self.topic, *options, "--bootstrap-servers", servers]

    def send(self, *options: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, self.words(*options), input=stdin)

    def records(self) -> list[Record]:
        return asyncio.run(self._records())

    async def _records(self) -> list[Record]:
        found: list[Record] = []
        servers = self.broker.bootstrap_servers
        async with TopicReader(self.topic, bootstrap_servers=servers) as reader:
            async for batch in reader:
                found += batch.records
        return sorted(found, key=lambda record: (record.timestamp, record.offset))


@pytest.fixture
def sending(kafka_broker: RunningBroker) -> Sending:
    return Sending(kafka_broker)


def test_a_record_of_options_is_written_and_its_place_is_shown(sending: Sending) -> None:
    given = ["--key", "c1", "--value", "ä", "--header", "a=1", "--header", "a=b=c"]
    result = sending.send(*given, "--partition", "2", "--timestamp", "1700000000000")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"sent to {sending.topic}, partition 2, offset 0\n"
    result = sending.send("--key", "c1", "--tombstone", "--json", "--no-idempotence")
    assert result.exit_code == 0, result.output
    place = json.loads(result.stdout)
    (first, last) = sending.records()
    assert (first.partition, first.timestamp) == (2, 1_700_000_000_000)
    assert (first.key, first.value) == (b"c1", "ä".encode())
    assert first.headers == (("a", b"1"), ("a", b"b=c"))
    assert (last.key, last.value) == (b"c1", None)
    expected = {"topic": last.topic, "partition": last.partition, "offset": last.offset}
    assert place == expected


def test_each_line_is_a_record(sending: Sending, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"k%d\tvalue %d\n" % (n % 7, n) for n in range(20_000)))
    result = sending.send("--file", str(file), "--key-separator", "\\t", "--compression", "lz4")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"20,000 records sent to {sending.topic}\n"
    found = sending.records()
    assert sorted((record.key, record.value) for record in found) == sorted(
        (b"k%d" % (n % 7), b"value %d" % n) for n in range(20_000)
    )
    by_key = [int((r.value or b"").split()[1]) for r in found if r.key == b"k3"]
    assert by_key == sorted(by_key)
    result = sending.send("--partition", "0", "--json", stdin="a\nb\n")
    assert [json.loads(line)["partition"] for line in result.stdout.splitlines()] == [0, 0]
    result = sending.send("--file", str(file), "--whole-file")
    assert result.stdout.startswith(f"sent to {sending.topic}, partition ")
    assert max(len(r.value or b"") for r in sending.records()) == file.stat().st_size


def test_the_line_that_cannot_be_written_is_named(sending: Sending, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"small\n" + os.urandom(1_500_000).hex().encode() + b"\nsmall\n")
    result = sending.send("--file", str(file), "--partition", "0")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: line 2: not published to {sending.topic}: ")
    result = sending.send("--value", "v", "--partition", "9")
    assert result.exit_code == 1
    assert "there is no partition 9: it has 4" in result.stderr


def test_a_missing_topic_is_an_error_with_the_command_that_creates_it(sending: Sending) -> None:
    words = sending.words("--value", "v", "--timeout", "1", topic="missing-topic")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "asyncrevoke topics create missing-topic" in result.stderr


def test_lines_are_sent_as_they_come_and_ctrl_c_ends_it(sending: Sending) -> None:
    words = [sys.executable, "-m", "asyncrevoke", *sending.words("--json")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            os.write(process.stdin.fileno(), b"%d\n" % number)
            assert json.loads(process.stdout.readline())["topic"] == sending.topic
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()
    assert [record.value for record in sending.records()] == [b"0", b"1", b"2"]
