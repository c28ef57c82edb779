"""Handlers are called again for dead letters, and their results are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from asyncrevoke import Consumer, Record
from asyncrevoke.cli.app import app
from asyncrevoke.cli.dead_letters import command
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.dead_letters.reprocessing import Reprocessing
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
    from asyncrevoke.replays.result_rows import Row

pytestmark = pytest.mark.timeout(30)

COUNT = 6


class Invoice(BaseModel):
    order: int


class DeadLetters:
    """A topic with the dead letters of orders 0, 1, 2, ..., two in each response. The one at offset
    1 is of another program."""

    topic = "orders.dlq"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None: ...

    async def ends(self) -> dict[TopicPartition, range]:
        return {TopicPartition(self.topic, 0): range(COUNT)}

    async def records(
        self, _ranges: Mapping[TopicPartition, range]
    ) -> AsyncGenerator[Sequence[Record]]:
        for first in range(0, COUNT, 2):
            yield [self._record(first), self._record(first + 1)]

    def _record(self, number: int) -> Record:
        origin = Record("orders", 0, number, 1_000, 0, b"k", b"%d" % number)
        letter = DeadLetter(origin, ValueError("boom"), 1)
        headers = () if number == 1 else tuple(letter.headers)
        return Record(self.topic, 0, number, 2_000, 0, letter.key, letter.value, headers)


LETTERS = cast("DeadLetterTopic", DeadLetters())


def billing(called: list[int], encoded: list[object], *, batch: bool = False) -> Consumer:
    """A consumer whose encoder fails."""
    consumer = Consumer(group_id="billing")

    def encode(_topic: str, value: object) -> bytes:
        encoded.append(value)
        raise ValueError("the schema registry has no such schema")

    if batch:

        @consumer.handler(
            "orders", publish_to="invoices", encoder=encode, dead_letter="orders.dlq", batch=True
        )
        async def bill_all(orders: list[int]) -> list[Invoice]:
            called.extend(orders)
            return [Invoice(order=order) for order in orders]

        return consumer

    @consumer.handler("orders", publish_to="invoices", encoder=encode, dead_letter="orders.dlq")
    async def bill(order: int) -> Invoice:
        called.append(order)
        return Invoice(order=order)

    return consumer


@pytest.mark.parametrize("batch", [False, True])
async def test_dropped_results_are_not_encoded(batch: bool) -> None:
    called: list[int] = []
    encoded: list[object] = []
    result = await Reprocessing(LETTERS, billing(called, encoded, batch=batch)).run()
    assert called == [0, 2, 3, 4, 5]
    assert (result.outcomes, encoded) == ({"ok": 5, "error": 1}, [])
    assert [(each.offset, each.why) for each in result.named] == [
        (1, "DeadLettersError: orders.dlq-0 offset 1: it has no headers of a dead letter")
    ]


async def test_a_dropped_result_needs_no_form_in_json() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", publish_to="invoices", dead_letter="orders.dlq")
    async def bill(order: int) -> object:
        return object()

    result = await Reprocessing(LETTERS, consumer).run()
    assert result.outcomes == {"ok": 5, "error": 1}


async def test_rows_have_the_models_that_handlers_return_as_json() -> None:
    consumer = Consumer(group_id="billing")
    rows: list[Row] = []

    @consumer.handler("orders", publish_to="invoices", dead_letter="orders.dlq")
    async def bill(order: int) -> Invoice:
        return Invoice(order=order)

    await Reprocessing(LETTERS, consumer, rows=rows.extend).run()
    assert [row.result for row in rows if row.outcome == "ok"] == [
        b'{"order":%d}' % order for order in (0, 2, 3, 4, 5)
    ]


@pytest.mark.parametrize(("limit", "called_for"), [(1, [0]), (2, [0, 2]), (9, [0, 2, 3, 4, 5])])
async def test_handlers_are_called_for_at_most_the_limit_of_dead_letters(
    limit: int, called_for: list[int]
) -> None:
    called: list[int] = []
    result = await Reprocessing(LETTERS, billing(called, []), limit=limit).run()
    assert called == called_for
    assert result.outcomes["ok"] == len(called_for)
    # What is rejected before the last of them is listed, too.
    assert result.failed == (0 if limit == 1 else 1)


def test_a_limit_below_one_is_rejected() -> None:
    with pytest.raises(ConfigError, match="limit=0: at least 1"):
        Reprocessing(LETTERS, billing([], []), limit=0)


APP = """
from asyncrevoke import Consumer
from pydantic import BaseModel

consumer = Consumer(group_id="billing")


class Invoice(BaseModel):
    order: int


@consumer.handler("orders", publish_to="invoices", dead_letter="orders.dlq")
async def bill(order: int) -> Invoice:
    return Invoice(order=order)
"""


def test_the_command_handles_the_first_dead_letters_and_drops_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **_options: object) -> DeadLetterTopic:
        return LETTERS

    (tmp_path / "app_with_models.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(command, "_opened", opened)
    arguments = ["dead-letters", "reprocess", "orders.dlq", "app_with_models:consumer"]
    done = CliRunner().invoke(app, [*arguments, "--drop-results", "--limit", "1"])
    assert (done.exit_code, done.stdout) == (0, "1 dead letter: 1 ok\n"), done.output
    wrong = CliRunner().invoke(app, [*arguments, "--drop-results", "--limit", "0"])
    assert wrong.exit_code == 2
