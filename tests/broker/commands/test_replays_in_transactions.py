"""``dead-letters replay --processing exactly_once`` on a real Apache Kafka: killed and started
again, it neither loses nor doubles a record."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker.commands.test_dead_letters_command import command, kafka, write, written
from typer.testing import CliRunner

from asyncrevoke.cli.app import app

if TYPE_CHECKING:
    from broker.handlers.test_handlers_on_a_real_broker import HandlerTopic

__all__ = ["kafka"]

KILLED = Path(__file__).with_name("killed_replay.py")
IN_TRANSACTIONS = ("--processing", "exactly_once")
COUNT = 60

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=1),
]


def values(kafka: HandlerTopic) -> list[int]:
    """What a reader with read_committed sees."""
    return [int(record.value or b"") for record in asyncio.run(written(kafka))]


def has_group(kafka: HandlerTopic, journal: Path) -> bool:
    """Whether the group of a journal exists."""
    (name,) = set(re.findall("asyncrevoke-replay-[0-9a-f]{32}", journal.read_text()))
    listed = CliRunner().invoke(app, ["groups", "--bootstrap-servers", kafka.address, "--json"])
    assert listed.exit_code == 0, listed.output
    return name in listed.stdout


@pytest.mark.parametrize("step", ["produced", "offsets", "sent", "ended", "journal"])
def test_a_replay_that_is_killed_in_a_transaction_is_continued_without_a_double(
    kafka: HandlerTopic, tmp_path: Path, step: str
) -> None:
    asyncio.run(write(kafka, COUNT))
    journal = tmp_path / "journal"
    killed = subprocess.run(
        [sys.executable, str(KILLED), kafka.dead, kafka.address, str(journal), step],
        timeout=60,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert has_group(kafka, journal)
    again = command("replay", kafka.dead, "--journal", str(journal), *IN_TRANSACTIONS, "--json")
    assert again.exit_code == 0, again.output
    result = json.loads(again.stdout)
    assert result["sent"] + result["sent_before"] == COUNT
    was_committed = step in ("ended", "journal")
    if step != "sent":
        assert result["sent_before"] == (20 if was_committed else 10)
    assert values(kafka) == list(range(COUNT))
    assert not has_group(kafka, journal)
    nothing = command("replay", kafka.dead, "--journal", str(journal), *IN_TRANSACTIONS, "--json")
    assert json.loads(nothing.stdout)["sent"] == 0
    assert not has_group(kafka, journal)


def test_a_replay_that_is_killed_again_and_again_sends_each_dead_letter_once(
    kafka: HandlerTopic, tmp_path: Path
) -> None:
    count, dice = 1500, random.Random(7)
    asyncio.run(write(kafka, count))
    journal = tmp_path / f"{kafka.dead}.replay.jsonl"
    replay = [sys.executable, "-m", "asyncrevoke", "dead-letters", "replay", kafka.dead]
    replay += ["--bootstrap-servers", kafka.address, "--rate", "1500", *IN_TRANSACTIONS]
    kills = 0
    while True:
        with subprocess.Popen(replay, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            lines = journal.read_bytes().count(b"\n") if journal.exists() else 0
            wanted, more = lines + dice.randrange(2, 6), dice.uniform(0.0, 0.01)
            while process.poll() is None and kills < 4:
                if journal.exists() and journal.read_bytes().count(b"\n") >= wanted:
                    time.sleep(more)
                    process.kill()
                    break
                time.sleep(0.001)
            output, _ = process.communicate(timeout=60)
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, output
            break
        kills += 1
    assert kills >= 3
    assert values(kafka) == list(range(count))


def test_a_refused_dead_letter_ends_the_replay_and_the_others_are_sent_once(
    kafka: HandlerTopic,
) -> None:
    asyncio.run(write(kafka, 3))
    small = f"{kafka.topic}.small"
    asyncio.run(kafka.create(small, settings={"max.message.bytes": "100"}))
    rejected = command("replay", kafka.dead, "--to", small, *IN_TRANSACTIONS)
    assert rejected.exit_code == 1, rejected.output
    assert "max.message.bytes" in rejected.output
    assert command("replay", kafka.dead, *IN_TRANSACTIONS).exit_code == 0
    assert command("replay", kafka.dead, *IN_TRANSACTIONS).exit_code == 0
    assert values(kafka) == [0, 1, 2]


def test_an_interrupted_transaction_is_named_by_a_replay_without_transactions(
    kafka: HandlerTopic, tmp_path: Path
) -> None:
    asyncio.run(write(kafka, COUNT))
    journal = tmp_path / "journal"
    arguments = [kafka.dead, kafka.address, str(journal), "journal"]
    subprocess.run([sys.executable, str(KILLED), *arguments], timeout=60, check=False)
    plain = command("replay", kafka.dead, "--journal", str(journal))
    assert plain.exit_code == 3, plain.output
    assert "may have sent it (--processing exactly_once finds out)" in plain.output
    again = command("replay", kafka.dead, "--journal", str(journal), *IN_TRANSACTIONS)
    assert again.exit_code == 0, again.output
    assert sorted(values(kafka)) == list(range(COUNT))


def test_transactions_need_a_producer_id(kafka: HandlerTopic) -> None:
    refused = command("replay", kafka.dead, "--no-idempotence", *IN_TRANSACTIONS)
    assert refused.exit_code == 2, refused.output
