"""The commands, without a JVM."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner

from asyncrevoke.cli.app import app as commands
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.handovers.group_handover import handover
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.report import ReplayReport
from asyncrevoke.spark.replays.report_page import report_page

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker


def checkpoint(folder: Path, offsets: dict[str, int]) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    (folder / "commits" / "0").write_text("v1\n{}")
    return folder


@pytest.mark.broker
@pytest.mark.kafka_topic(partitions=1)
def test_handing_over_is_shown_first_and_applied_then(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "ck", {"0": 0})
    words = ["handover", str(folder), "--group", kafka_topic, "--topic", kafka_topic]
    words += ["--bootstrap-servers", kafka_broker.bootstrap_servers]
    shown = CliRunner().invoke(commands, words)
    assert shown.exit_code == 0, shown.output
    assert "nothing was committed: add --apply" in shown.output
    applied = CliRunner().invoke(commands, [*words, "--apply"])
    assert applied.exit_code == 0, applied.output
    assert "committed for group" in applied.output
    again = CliRunner().invoke(commands, words)
    assert f"group {kafka_topic} (empty)" in again.output
    assert "has no offset" not in again.output


@pytest.mark.broker
@pytest.mark.kafka_topic(partitions=2)
def test_partitions_that_the_checkpoint_does_not_have_are_named(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "ck", {"0": 0})
    words = ["handover", str(folder), "--group", kafka_topic, "--topic", kafka_topic]
    words += ["--bootstrap-servers", kafka_broker.bootstrap_servers]
    shown = CliRunner().invoke(commands, [*words, "--apply"])
    assert shown.exit_code == 0, shown.output
    start = f"The checkpoint has no offset of {kafka_topic}-1: the group "
    assert f"{start}begins at its first offset 0." in shown.output
    again = CliRunner().invoke(commands, words)
    assert f"{start}has committed 0." in again.output
    moves = json.loads(CliRunner().invoke(commands, [*words, "--json"]).stdout)["moves"]
    assert [(move["partition"], move["to"], move["new"]) for move in moves] == [
        (0, 0, False),
        (1, 0, True),
    ]


def test_a_wrong_folder_is_a_wrong_option(tmp_path: Path) -> None:
    result = CliRunner().invoke(commands, ["handover", str(tmp_path), "--group", "g"])
    assert result.exit_code == 2
    assert "is not a checkpoint of a streaming query" in result.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "5", "--from-group", "g"], "leave one out"),
        (["--from", "yesterday"], "a time like"),
    ],
)
def test_a_wrong_start_of_a_replay_is_an_error(
    words: list[str], sentence: str, app: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    arguments = ["replay", "replayed_app:consumer", "--topic", "t", "--out", str(tmp_path), *words]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.usefixtures("notes")
def test_a_replay_begins_at_committed_offsets_and_writes_a_report(
    kafka_broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    address = kafka_broker.bootstrap_servers

    async def fill() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for n in range(40):
                await producer.send_and_wait(topic, b"bad" if n == 39 else b"x", partition=n % 2)

    asyncio.run(fill())
    offsets = {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 15}
    handover(offsets, group=topic, bootstrap=address, dry_run=False)
    words = [sys.executable, "-m", "asyncrevoke", "replay", "replayed_app:consumer"]
    words += ["--topic", topic, "--from-group", topic, "--out", str(tmp_path), "--run-id", "back"]
    words += ["--master", "local[2]", "--bootstrap-servers", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    # One row is an error.
    assert done.returncode == 1, done.stdout + done.stderr
    assert "run back: 13 records" in done.stdout
    assert "12 ok" in done.stdout
    assert "KeyError: 1" in done.stdout
    assert "99% of calls within" in done.stdout
    assert "<rect" in (tmp_path / "report-back.html").read_text()


def test_the_report_is_a_page_that_needs_no_network() -> None:
    page = report_page(
        ReplayReport(
            run_id="<july>",
            results="/data/results",
            ranges=(OffsetRange("orders", 0, 5, 9, 5),),
            records=4,
            outcomes={"ok": 3, "error": 1},
            errors={"KeyError": 1},
            latency={0.5: 0.005, 1.0: 2.5},
            histogram={0.005: 3, 2.5: 1},
            seconds=1.5,
            resumed=True,
        )
    )
    assert "&lt;july&gt;" in page
    assert page.count("<rect") == 2
    assert "100% within" in page
    assert "src=" not in page
    assert "href=" not in page
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
