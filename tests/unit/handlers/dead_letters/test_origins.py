"""Which origins the records of dead letter topics and retry topics may name."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast

import pytest
from unit.handlers.dead_letters.failing_handler import LATER, FailingHandler

from asyncrevoke import Consumer, Record, RetryTopic
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.origin_reader import OriginReader
from asyncrevoke.handlers.dead_letters.dead_letter import ATTEMPTS, DeadLetter, may_be_origin
from asyncrevoke.handlers.dead_letters.retry_message import (
    RetryHistory,
    RetryMessage,
    retry_history,
)
from asyncrevoke.replays.opened_handlers import Target, open_handlers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.replays.opened_handlers import Errors
    from asyncrevoke.replays.result_rows import ResultRows

MOST = 2**31 - 1


def billing() -> Consumer:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", "refunds", retry_topic=LATER, dead_letter="orders.dlq")
    async def orders(value: bytes) -> None: ...

    @consumer.handler("payments", dead_letter="payments.dlq")
    async def payments(value: bytes) -> None: ...

    @consumer.handler(pattern="clicks.*", retry_topic=RetryTopic("all.retry"), dead_letter="dlq")
    async def clicks(value: bytes) -> None: ...

    @consumer.handler("shared", where=lambda record: record.key, dead_letter="first.dlq")
    async def first(value: bytes) -> None: ...

    @consumer.handler("shared", unmatched="dead_letter", dead_letter="second.dlq", where=bool)
    async def second(value: bytes) -> None: ...

    return consumer


@pytest.mark.parametrize(
    ("origin", "written_to", "may"),
    [
        ("orders", "orders.dlq", True),
        ("refunds", "orders.dlq", True),
        ("orders", "orders.retry", True),
        # Records of other programs in the retry topic fail, too.
        ("orders.retry", "orders.retry", True),
        ("orders.retry", "orders.dlq", True),
        ("payments", "orders.dlq", False),
        ("payments", "orders.retry", False),
        ("orders", "payments.dlq", False),
        ("clicks.eu", "dlq", True),
        ("clicks.eu", "all.retry", True),
        ("clicks.eu", "orders.dlq", False),
        ("orders", "all.retry", False),
        ("my.clicks", "dlq", False),
        ("clicks.dlq", "first.dlq", False),
        ("clicks\x1b[2J", "dlq", False),
        ("clicks\norders", "dlq", False),
        ("clicks/../orders", "dlq", False),
        ("clicks" * 50, "dlq", False),
        ("", "dlq", False),
        ("orders", "dlq", False),
        ("shared", "first.dlq", True),
        ("shared", "second.dlq", True),
        ("unknown", "orders.dlq", False),
    ],
)
def test_an_origin_has_a_handler_that_writes_failed_records_there(
    origin: str, written_to: str, may: bool
) -> None:
    router = billing().handler_host.router
    assert router is not None
    assert may_be_origin(router, origin, written_to) is may


# -- retry topics ---------------------------------------------------------------------------------


def retry_headers(origin: str, calls: int = 1) -> dict[str, str | bytes | None]:
    history = RetryHistory(Record(origin, 7, 99, 5, 0, b"k", b"v"), calls, 0)
    return dict(RetryMessage(history, ValueError("no"), 0.0).headers)


@pytest.mark.parametrize("origin", ["payments", "payments\x1b[2J", "ü", ""])
async def test_a_record_of_a_retry_topic_does_not_choose_topic_offset_and_attempt(
    origin: str,
) -> None:
    failing = FailingHandler(0, retry_topic=LATER, dead_letter="dlq")
    async with failing.running() as t:
        await t.publish("orders.retry", "forged", headers=retry_headers(origin))
        assert failing.keys == [("orders.retry", 0, 0)]
        assert failing.attempts == [(0, 1)]
        await t.publish("orders.retry", "sound", headers=retry_headers("orders"))
        assert failing.keys[1:] == [("orders", 7, 99)]
        assert failing.attempts[1:] == [(0, 2)]


async def test_the_first_record_of_a_retry_topic_with_another_origin_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = FailingHandler(0, retry_topic=LATER)
    async with failing.running() as t:
        for _ in range(3):
            await t.publish("orders.retry", "forged", headers=retry_headers("payments"))
    (line,) = (message for message in caplog.messages if "names an origin" in message)
    assert "orders.retry-0" in line
    assert "origin=payments" in line


async def test_a_record_with_the_highest_number_of_calls_keeps_its_history() -> None:
    failing = FailingHandler(2**40, retry_topic=LATER, dead_letter="dlq")
    async with failing.running() as t:
        await t.publish("orders.retry", "poison", headers=retry_headers("orders", MOST - 1))
        await t.advance(300)
        assert failing.keys == [("orders", 7, 99)] * len(failing.keys)
        (letter,) = t.dead_letters("dlq")
        headers = dict(letter.headers)
        assert headers["asyncrevoke-origin-topic"] == b"orders"
        assert headers["asyncrevoke-attempts"] == b"%d" % MOST


def test_counts_in_headers_end_at_what_is_read_again() -> None:
    first = Record("orders", 7, 99, 5, 0, b"k", b"v")
    assert (ATTEMPTS, b"%d" % MOST) in DeadLetter(first, ValueError("no"), MOST + 1).headers
    message = RetryMessage(RetryHistory(first, MOST, MOST), ValueError("no"), 1.0)
    read = Record("orders.retry", 0, 1, 0, 0, b"k", b"v", tuple(message.headers))
    again = retry_history(read)
    assert again is not None
    assert (again.calls, again.retry_topic_reads) == (MOST, MOST)


# -- dead letters that are reprocessed -----------------------------------------------------------


class Rejected:
    """The reasons for which dead letters are given to no handler."""

    def __init__(self) -> None:
        self.why: list[str] = []

    def reject(self, record: Record, error: Exception) -> None:
        self.why.append(f"{record.topic_partition}: {error}")

    async def wait_for_room(self) -> None: ...


async def reprocessed(
    origin: str, topic: str, chosen: DeadLetterFilter | None = None, errors: Errors = "record"
) -> tuple[list[str], list[str]]:
    """The topics whose handlers a dead letter is given to, and the reasons against it."""
    letter = DeadLetter(Record(origin, 0, 42, 5, 0, b"k", b"v"), ValueError("no"), 1)
    batches = [[Record(topic, 0, 0, 1, 0, b"k", b"v", tuple(letter.headers))]]

    async def read() -> Sequence[Record]:
        return batches.pop() if batches else ()

    consumer, rejected = billing(), Rejected()
    async with AsyncExitStack() as stack:
        target = Target("the consumer", errors)
        opened = await open_handlers(consumer, consumer.config, target, stack, None)
        strict = errors == "fail"
        reader = OriginReader(
            read, chosen or DeadLetterFilter(), opened, cast("ResultRows", rejected), strict=strict
        )
        return [record.topic for record in await reader.read()], rejected.why


async def test_a_dead_letter_does_not_choose_the_handler_that_reprocesses_it() -> None:
    assert await reprocessed("orders", "orders.dlq") == (["orders"], [])
    assert await reprocessed("clicks.eu", "dlq", errors="policy") == (["clicks.eu"], [])
    for topic in ("orders.dlq", "dlq", "payments"):
        found, why = await reprocessed("payments", topic)
        assert found == []
        assert f"no handler of payments, its origin, has dead_letter={topic}" in why[0]
    with pytest.raises(DeadLettersError, match="no handler of payments"):
        await reprocessed("payments", "orders.dlq", errors="fail")


async def test_a_selected_origin_is_reprocessed_by_its_handler_whatever_the_topic_is() -> None:
    chosen = DeadLetterFilter(origin_topics=frozenset(["payments", "unknown"]))
    assert await reprocessed("payments", "orders.dlq", chosen) == (["payments"], [])
    found, why = await reprocessed("unknown", "orders.dlq", chosen)
    assert (found, "no handler for topic 'unknown'" in why[0]) == ([], True)
    # With errors="record" no handler reads a retry topic.
    found, why = await reprocessed("orders.retry", "orders.dlq")
    assert (found, "no handler for topic 'orders.retry'" in why[0]) == ([], True)
