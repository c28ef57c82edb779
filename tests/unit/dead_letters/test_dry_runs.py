"""A dry run lists what a replay with the same journal would send."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self, cast

import pytest
from typer.testing import CliRunner

from asyncrevoke import ConsumerConfig, Record, TopicPartition
from asyncrevoke.cli.app import app
from asyncrevoke.cli.dead_letters import command
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.replay import Replay, ReplayOptions
from asyncrevoke.dead_letters.replay_journal import ReplayJournal
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    read_dead_letter,
)
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic

pytestmark = pytest.mark.timeout(30)

ORDERS = TopicPartition("orders", 0)
NEW = "nothing was sent with it before; what was sent with another journal counts as not sent"


class DeadLetters:
    """A topic with the dead letters of orders 0, 1, 2, ..., which nobody can write to."""

    topic = "orders.dlq"
    config = ConsumerConfig()

    def __init__(self, count: int) -> None:
        self._count = count

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None: ...

    async def ends(self) -> dict[TopicPartition, range]:
        return {TopicPartition(self.topic, 0): range(self._count)}

    async def read(
        self, _ranges: object
    ) -> AsyncGenerator[Sequence[StoredDeadLetter | NoDeadLetter]]:
        for number in range(self._count):
            origin = Record("orders", 3, 70 + number, 1_000, 0, b"k", b"v")
            letter = DeadLetter(origin, ValueError("boom"), 1)
            yield [
                read_dead_letter(
                    Record(self.topic, 0, number, 2_000, 0, b"k", b"v", tuple(letter.headers))
                )
            ]


def letters(count: int) -> DeadLetterTopic:
    return cast("DeadLetterTopic", DeadLetters(count))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_dry_run_counts_what_the_journal_says_was_sent_before(folder: Path) -> None:
    path = folder / "orders.dlq.replay.jsonl"
    with ReplayJournal(path, "orders.dlq") as journal:
        journal.sending([(0, 0), (0, 1)])
        journal.ended([(0, 0, ORDERS, 9)], [])
        before = path.read_bytes()
        # Also while another replay writes to it.
        result = await Replay(letters(4), ReplayOptions(dry_run=True)).run()
    assert (result.sent, result.sent_before, result.not_sent) == (2, 1, 1)
    assert [(each.offset, each.origin_offset) for each in result.planned] == [(2, 72), (3, 73)]
    assert "an interrupted replay may have sent it" in result.named[0].why
    resent = ReplayOptions(dry_run=True, resend_in_doubt=True)
    assert (await Replay(letters(4), resent).run()).sent == 3
    assert path.read_bytes() == before


async def test_a_dry_run_in_transactions_names_what_only_a_replay_finds_out(folder: Path) -> None:
    path = folder / "orders.dlq.replay.jsonl"
    with ReplayJournal(path, "orders.dlq") as journal:
        journal.begin_transactions("asyncrevoke-replay-1")
        journal.begin_transaction([(0, 0)])
    options = ReplayOptions(dry_run=True, processing="exactly_once")
    result = await Replay(letters(2), options).run()
    assert (result.sent, result.not_sent) == (1, 1)
    assert result.named[0].why.endswith("(processing=exactly_once finds out, except in a dry run)")


async def test_a_dry_run_makes_and_changes_no_journal(folder: Path) -> None:
    new: list[Path] = []
    dry = ReplayOptions(dry_run=True)
    await Replay(letters(1), dry, on_new_journal=new.append).run()
    assert list(folder.iterdir()) == []
    path = folder / "orders.dlq.replay.jsonl"
    torn = b'{"line":"replay","version":1,"dead_letters":"orders.dlq"}\n{"line":"sen'
    path.write_bytes(torn)
    await Replay(letters(1), dry, on_new_journal=new.append).run()
    assert path.read_bytes() == torn
    assert new == [path, path], "nothing was sent with it"


async def test_a_journal_with_what_was_or_may_have_been_sent_is_not_new(folder: Path) -> None:
    new: list[Path] = []
    path = folder / "journal"
    for sent in (True, False):
        with ReplayJournal(path, "orders.dlq") as journal:
            assert journal.is_new
            journal.sending([(0, 0)])
            if sent:
                journal.ended([(0, 0, ORDERS, 9)], [])
        options = ReplayOptions(dry_run=True, journal=path)
        await Replay(letters(1), options, on_new_journal=new.append).run()
        path.unlink()
    with ReplayJournal(path, "orders.dlq") as journal:
        journal.sending([(0, 0)])
        journal.ended([], [(0, 0)])
        assert journal.is_new
    assert new == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"line":"sent","partition":0,"offset":7,"to_topic":"t","to_partition":0}', "damaged"),
        ('{"line":"sending","partition":0,"offsets":[7]}', "was created anew"),
    ],
)
async def test_a_dry_run_refuses_a_journal_that_a_replay_refuses(
    folder: Path, line: str, why: str
) -> None:
    path = folder / "orders.dlq.replay.jsonl"
    with ReplayJournal(path, "orders.dlq"):
        pass
    with path.open("a") as file:
        file.write(f"{line}\n")
    for dry in (True, False):
        with pytest.raises(DeadLettersError, match=why):
            await Replay(letters(2), ReplayOptions(dry_run=dry)).run()


# -- the command ----------------------------------------------------------------------------------


def test_the_command_lists_the_first_that_would_be_sent_and_says_that_the_journal_is_new(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **_options: object) -> DeadLetterTopic:
        return letters(120)

    monkeypatch.setattr(command, "_opened", opened)
    arguments = ["dead-letters", "replay", "orders.dlq", "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == [
        "120 would be sent (120 to orders)",
        "  0:0: orders-3 offset 70 to orders (ValueError)",
    ]
    assert lines[20:] == ["  0:19: orders-3 offset 89 to orders (ValueError)", "  ..."]
    path = folder / "orders.dlq.replay.jsonl"
    assert result.stderr.strip() == f"new journal {path}: {NEW}"
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert len(json.loads(as_json.stdout)["planned"]) == 100

    with ReplayJournal(path, "orders.dlq") as journal:
        places = [(0, offset) for offset in range(118)]
        journal.sending(places)
        journal.ended([(*place, ORDERS, -1) for place in places], [])
    again = CliRunner().invoke(app, arguments)
    assert again.stdout.splitlines() == [
        "2 would be sent (2 to orders)",
        "  0:118: orders-3 offset 188 to orders (ValueError)",
        "  0:119: orders-3 offset 189 to orders (ValueError)",
        "118 sent before",
    ]
    assert again.stderr.strip() == ""
