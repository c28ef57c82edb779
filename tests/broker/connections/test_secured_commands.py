"""Every command that connects does so with TLS, client certificates and each mechanism of SASL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from broker.connections.secured_broker import LISTENERS, PASSWORD, SecureBroker
from httpx import AsyncClient
from typer.testing import CliRunner

from asyncrevoke import Consumer, Producer, Record
from asyncrevoke.broker.listeners.security import unsigned_token
from asyncrevoke.cli.app import app
from asyncrevoke.cli.spark import replay as replay_command
from asyncrevoke.cli.spark.replay import RunOptions
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.journal import Journal, KafkaSink
from asyncrevoke.spark import session as spark_session
from asyncrevoke.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    from typer.testing import Result

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

TOPIC, GROUP, SHIPPED = "commands", "commands-group", "commands-journal"
DEAD, RETURNED = "commands.dlq", "commands-returned"
RECORDS = 3
EACH = pytest.mark.parametrize("listener", ["MUTUAL", "PLAINTLS", "SCRAM512", "BEARER"])


class Finished(NamedTuple):
    """A group that has read its topic, and left a journal in a folder and in a topic."""

    secure: SecureBroker
    journal: Path

    def connection(self, listener: str, *, wrong: bool = False) -> tuple[list[str], dict[str, str]]:
        """The options that connect to a listener, and what goes into the environment."""
        protocol, mechanism = LISTENERS[listener]
        words = ["--bootstrap-servers", f"localhost:{self.secure.ports[listener]}"]
        words += ["--security-protocol", protocol]
        words += ["--ca-file", str(self.secure.authority.path)]
        if mechanism is None:
            return ([*words] if wrong else [*words, *self._certificate]), {}
        words += ["--sasl-mechanism", mechanism]
        if mechanism == "OAUTHBEARER":
            token = "not.a-token." if wrong else unsigned_token("alice")
            return words, {"ASYNCREVOKE_SASL_TOKEN": token}
        password = "wrong-password" if wrong else PASSWORD
        return [*words, "--sasl-username", "alice"], {"ASYNCREVOKE_SASL_PASSWORD": password}

    @property
    def _certificate(self) -> list[str]:
        return ["--client-certificate", self.secure.certificate]

    def run(self, listener: str, *words: str, wrong: bool = False) -> Result:
        options, variables = self.connection(listener, wrong=wrong)
        return CliRunner().invoke(app, [*words, *options], env=variables)


@pytest.fixture(scope="module")
def finished(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished") / "journal"
    for topic in TOPIC, SHIPPED, DEAD, RETURNED:
        secure.broker.create_topic(topic, 1)
        secure.broker.allow("alice", "topic", topic, ["all"])
    secure.broker.allow("alice", "group", GROUP, ["all"])
    asyncio.run(read_all(secure, folder))
    return Finished(secure, folder)


async def read_all(secure: SecureBroker, folder: Path) -> None:
    options = secure.options("SCRAM256")
    async with Producer(**options) as producer:
        for number in range(RECORDS):
            await producer.publish(TOPIC, b"%d" % number)
        failed = Record(RETURNED, 0, 0, 1, 0, None, b"0", ())
        headers = DeadLetter(failed, ValueError("no"), 1).headers
        await producer.publish(DEAD, b"0", headers=headers)
    journal = Journal(folder, sink=KafkaSink(SHIPPED, **options))
    consumer = Consumer(
        TOPIC, group_id=GROUP, auto_offset_reset="earliest", journal=journal, **options
    )
    seen = 0
    async with asyncio.timeout(60), consumer:
        while seen < RECORDS:
            seen += len((await consumer.poll(timeout=0.1)).records)
        await consumer.poll(timeout=0)


@EACH
def test_groups_shows_the_group(finished: Finished, listener: str) -> None:
    done = finished.run(listener, "groups", GROUP, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["group"] == GROUP
    rejected = finished.run(listener, "groups", GROUP, "--json", wrong=True)
    assert rejected.exit_code == 1
    assert "wrong-password" not in rejected.output


@EACH
def test_topics_create_creates_a_topic(finished: Finished, listener: str) -> None:
    topic = f"commands-{listener.lower()}"
    finished.secure.broker.allow("alice", "topic", topic, ["create"])
    done = finished.run(listener, "topics", "create", f"{topic}:2")
    assert (done.exit_code, done.stdout) == (0, f"created {topic} with 2 partitions\n"), done.output
    rejected = finished.run(listener, "topics", "create", topic, wrong=True)
    assert rejected.exit_code == 1, rejected.output
    assert "wrong-password" not in rejected.output


@EACH
def test_audit_reads_the_topic(finished: Finished, listener: str) -> None:
    done = finished.run(listener, "audit", str(finished.journal), "--topic", TOPIC, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "PASS"


@EACH
def test_a_journal_is_collected_and_checked(
    finished: Finished, listener: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "collected")
    done = finished.run(listener, "journal", "collect", folder, "--topic", SHIPPED)
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(app, ["journal", "check", folder])
    assert checked.exit_code == 0, checked.output


def test_journal_collect_names_a_topic_that_is_missing_and_shows_no_token(
    finished: Finished, tmp_path: Path
) -> None:
    words = ["journal", "collect", str(tmp_path / "new"), "--topic", "no-such-topic"]
    options, variables = finished.connection("BEARER")
    done = CliRunner().invoke(app, [*words, *options], env=variables)
    assert done.exit_code == 2
    assert "no topic 'no-such-topic'" in done.stderr.replace("\n", " ")
    rejected = finished.run("BEARER", *words, wrong=True)
    assert rejected.exit_code == 1
    assert variables["ASYNCREVOKE_SASL_TOKEN"] not in done.output + rejected.output


@EACH
def test_handover_shows_the_committed_offsets_of_the_group(
    finished: Finished, listener: str, tmp_path: Path
) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"0": {RECORDS}}}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    words = ["handover", str(tmp_path), "--group", GROUP, "--topic", TOPIC, "--json"]
    done = finished.run(listener, *words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["group"] == GROUP


@EACH
def test_dead_letters_are_listed_and_replayed(
    finished: Finished, listener: str, tmp_path: Path
) -> None:
    done = finished.run(listener, "dead-letters", "list", DEAD, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["count"] == 1
    options = ("--journal", str(tmp_path / "replayed.jsonl"), "--origin-topic", RETURNED, "--json")
    replayed = finished.run(listener, "dead-letters", "replay", DEAD, *options)
    assert replayed.exit_code == 0, replayed.output
    assert json.loads(replayed.stdout)["sent"] == 1
    rejected = finished.run(listener, "dead-letters", "list", DEAD, wrong=True)
    assert rejected.exit_code == 1, rejected.output
    assert "wrong-password" not in rejected.output


@EACH
def test_replay_connects_as_its_application_does(
    finished: Finished, listener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = finished.secure.options(listener)
    if listener == "MUTUAL":
        options["ssl_context"] = finished.secure.authority.client(finished.secure.certificate)
    consumer = Consumer(group_id=GROUP, **options)
    planned: list[OffsetRange] = []

    class Planned(Exception):  # noqa: N818 - no error
        """The ranges are known; their records need a cluster of Spark."""

    def plan(_: RunOptions, _target: str, ranges: list[OffsetRange], *_others: object) -> None:
        planned.extend(ranges)
        raise Planned

    def find(_target: str) -> Consumer:
        return consumer

    monkeypatch.setattr(spark_session, "check_spark", bool)
    monkeypatch.setattr(replay_command, "find_consumer", find)
    monkeypatch.setattr(RunOptions, "run", plan)
    words = ["replay", "app:consumer", "--topic", TOPIC, "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, Planned), done.output
    (found,) = planned
    assert found == OffsetRange(TOPIC, 0, 0, RECORDS, topic_id=found.topic_id)
    assert found.topic_id


async def test_the_dashboard_shows_the_group(finished: Finished) -> None:
    async def shown(listener: str) -> tuple[int | None, str]:
        options, variables = finished.connection(listener)
        page = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "asyncrevoke", "dashboard", "--group", GROUP, "--port", "0"),
            *options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **variables},
        )
        assert page.stdout is not None
        address = (await page.stdout.readline()).decode().strip()
        async with asyncio.timeout(60), AsyncClient(base_url=address) as client:
            while "Empty" not in (await client.get("view")).json()["notes"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        page.send_signal(signal.SIGINT)
        _, errors = await page.communicate()
        return page.returncode, errors.decode()

    for code, errors in await asyncio.gather(shown("MUTUAL"), shown("BEARER")):
        assert (code, errors) == (0, "Ctrl-C ends it\n")
