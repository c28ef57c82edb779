"""Records that have failed for good: written elsewhere, acknowledged, and only then done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.handlers.scripted_runner import RunningHandlers, running
from unit.handlers.scripted_source import (
    ORDERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

BOOM = ValueError("boom")


class HeldLetters:
    """Letters that are acknowledged, or rejected, when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, DeadLetter]] = []
        self._futures: list[asyncio.Future[None]] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        self.sent.append((topic, letter))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        await future

    @property
    def open(self) -> int:
        return sum(not future.done() for future in self._futures)

    def complete(self, error: Exception | None = None) -> None:
        for future in self._futures:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)


def burying(
    work: HeldWork, letters: HeldLetters, retry: Retry | None = None, concurrency: int = 64
) -> AbstractAsyncContextManager[RunningHandlers]:
    return running(
        work, retry=retry, dead_letter="dlq", dead_letters=letters, concurrency=concurrency
    )


# -- what is written ------------------------------------------------------------------------------


def test_a_dead_letter_has_the_records_bytes_its_origin_and_its_error() -> None:
    headers = (("trace", b"1"), ("none", None))
    origin = Record("orders", 3, 42, 1700000000123, 0, b"key", None, headers)
    letter = DeadLetter(origin, ValueError("boom"), 3)
    assert (letter.key, letter.value) == (b"key", None)
    assert letter.headers == [
        ("trace", b"1"),
        ("none", None),
        ("asyncrevoke-origin-topic", b"orders"),
        ("asyncrevoke-origin-partition", b"3"),
        ("asyncrevoke-origin-offset", b"42"),
        ("asyncrevoke-origin-timestamp", b"1700000000123"),
        ("asyncrevoke-error-type", b"ValueError"),
        ("asyncrevoke-error-message", b"boom"),
        ("asyncrevoke-attempts", b"3"),
    ]


def test_an_error_of_a_module_is_named_with_it() -> None:
    headers = dict(DeadLetter(record(0), ConfigError("no"), 1).headers)
    assert headers["asyncrevoke-error-type"] == b"asyncrevoke.errors.ConfigError"


def test_an_error_whose_str_raises_is_written_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    message = dict(DeadLetter(record(0), MuteError(), 1).headers)["asyncrevoke-error-message"]
    assert message == b"(str() of this error raised RuntimeError)"


@given(st.text(st.characters(), min_size=0, max_size=3000))
def test_a_message_is_cut_at_1_kib_and_between_characters(text: str) -> None:
    message = dict(DeadLetter(record(0), ValueError(text), 1).headers)["asyncrevoke-error-message"]
    assert message is not None
    assert len(message) <= 1024
    whole = text.encode("utf-8", "backslashreplace").decode()
    assert whole.startswith(message.decode())
    assert len(message) > 1020 or message.decode() == whole


# -- when it counts -------------------------------------------------------------------------------


async def test_a_record_is_done_when_its_dead_letter_is_acknowledged() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters) as run:
        fails, behind = record(0), record(1)
        run.source.feed(fails, behind)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: letters.open)
        await turns()
        assert run.source.state_of(fails) is RecordState.PENDING
        assert not work.running, "its lane waits for the letter"
        letters.complete()
        await until(lambda: work.running == [behind])
        await until(lambda: run.source.state_of(fails) is RecordState.DONE)
        assert letters.sent[0][0] == "dlq"
        work.end()
        await run.stop()


async def test_dead_letters_are_sent_after_the_last_attempt_only() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters, Retry(attempts=3, backoff=1)) as run:
        run.source.feed(record(0))
        for _ in range(3):
            assert not letters.sent
            await until(lambda: work.running)
            work.end(error=BOOM)
            await turns()
            run.clock.advance(100)
        await until(lambda: letters.open)
        assert dict(letters.sent[0][1].headers)["asyncrevoke-attempts"] == b"3"
        letters.complete()
        await until(lambda: run.source.completions)
        await run.stop()


async def test_a_value_that_does_not_decode_is_sent_without_any_attempt() -> None:
    letters = HeldLetters()

    async def handle(value: int) -> None:
        raise AssertionError

    retry = Retry(attempts=None)
    async with running(handle, retry=retry, dead_letter="dlq", dead_letters=letters) as run:
        run.source.feed(record(0, value=b"no number"))
        await until(lambda: letters.open)
        headers = dict(letters.sent[0][1].headers)
        assert headers["asyncrevoke-attempts"] == b"0"
        assert headers["asyncrevoke-error-type"] == b"asyncrevoke.errors.DecodeError"
        letters.complete()
        await until(lambda: run.source.completions)
        await run.stop()


async def test_a_dead_letter_is_sent_during_a_revocation_too() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters, concurrency=1) as run:
        fails = record(0)
        run.source.feed(fails)
        await until(lambda: work.running)
        run.source.feed(revoke=[ORDERS])
        await turns()
        work.end(error=BOOM)
        await until(lambda: letters.open)
        letters.complete()
        await run.stop()
        assert run.source.state_of(fails) is RecordState.DONE


async def test_closing_waits_for_dead_letters() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters) as run:
        fails = record(0)
        run.source.feed(fails)
        await until(lambda: work.running)
        run.source.stop()
        await until(lambda: run.source.parked_now)
        work.end(error=BOOM)
        await until(lambda: letters.open)
        assert not run.task.done()
        letters.complete()
        await run.stop()
        assert run.source.state_of(fails) is RecordState.DONE


async def test_dead_letters_of_a_lost_partition_complete_no_record() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: letters.open)
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.running and work.running[0].tracker_id == 2)
        work.end()
        await run.stop()
        assert [completion.tracker_id for completion in run.source.completions] == [2]


async def test_a_handler_that_exits_stops_the_consumer_and_is_no_dead_letter() -> None:
    work, letters = HeldWork(), HeldLetters()
    async with burying(work, letters) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        work.end(error=SystemExit(3))
        assert "SystemExit" in str(await run.failure())
        assert not letters.sent


async def test_a_dead_letter_topic_without_a_sender_is_a_config_error() -> None:
    async with running(HeldWork(), dead_letter="dlq") as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, ConfigError)
        with pytest.raises(ConfigError, match="nothing sends to it"):
            raise error
