"""Handlers of batches: retries, dead letters and decode errors of single values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from unit.handlers.scheduling.held_batches import BOOM, RETRY, HeldBatches, batching, some
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import ORDERS, RecordState, record, turns, until

from asyncrevoke.client.errors import ConfigError, DecodeError
from asyncrevoke.handlers.policy.batch import BatchError
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter


class Letters:
    """Accepts every dead letter."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[bytes | None] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        headers = dict(letter.headers)
        self.offsets.append(int(headers["asyncrevoke-origin-offset"] or b""))
        self.errors.append(headers["asyncrevoke-error-message"])


async def test_after_a_batch_error_failed_values_are_retried_and_the_others_are_done() -> None:
    work = HeldBatches()
    async with batching(work, retry=RETRY, max_records=4) as run:
        run.source.feed(*some(0, 1, 2, 3, 4))
        await until(lambda: work.running)
        work.end(BatchError({2: BOOM, 0: BOOM}))
        await until(lambda: run.clock.timers)
        assert [completion.offset for completion in run.source.completions] == [1, 3]
        await turns()
        assert work.running == [], "the partition waits"
        run.clock.advance(1)
        await until(lambda: work.running == [[0, 2]])
        work.end(BatchError({1: BOOM}))
        await until(lambda: run.clock.timers)
        run.clock.advance(2)
        await until(lambda: work.running == [[2]])
        work.end()
        await until(lambda: work.running == [[4]])
        work.end()
        await run.stop()
        assert run.source.in_flight == 0


async def test_any_other_exception_fails_all_of_the_batch() -> None:
    work = HeldBatches()
    async with batching(work, retry=RETRY) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BOOM)
        await until(lambda: run.clock.timers)
        assert run.source.completions == []
        run.clock.advance(1)
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await run.stop()


async def test_a_batch_error_with_a_wrong_index_fails_all_of_the_batch() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        wrong = BatchError({7: BOOM})
        work.end(wrong)
        assert await run.failure() is wrong
        assert run.source.completions == []


def test_a_batch_error_names_at_least_one_value() -> None:
    with pytest.raises(ConfigError, match="names no failed value"):
        BatchError({})


async def test_after_the_last_attempt_failed_values_go_to_the_dead_letter_topic() -> None:
    work, letters = HeldBatches(), Letters()
    retry = Retry(attempts=2, backoff=1, retry_on=OSError)
    async with batching(work, retry=retry, dead_letter="dlq", dead_letters=letters) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BatchError({0: OSError("later"), 1: BOOM}))
        await until(lambda: run.clock.timers)
        assert run.source.commit_point(some(0, 1, 2)) == 0
        run.clock.advance(1)
        await until(lambda: work.running == [[0]])
        assert letters.offsets == [1], "what cannot be tried again goes at once with the next"
        work.end(OSError("still"))
        await until(lambda: not run.source.in_flight)
        assert letters.offsets == [1, 0]
        assert letters.errors == [b"boom", b"still"]
        assert run.source.commit_point(some(0, 1, 2)) == 3
        await run.stop()


async def test_skipped_values_are_completed_and_the_partition_continues() -> None:
    work = HeldBatches()
    async with batching(work, on_error="skip") as run:
        run.source.feed(*some(0, 1, 2, 3, 4, 5))
        await until(lambda: work.running)
        work.end(BatchError({1: BOOM}))
        await until(lambda: work.running == [[3, 4, 5]])
        assert sorted(completion.offset for completion in run.source.completions) == [0, 1, 2]
        work.end()
        await run.stop()


async def test_after_the_last_attempt_failed_values_are_skipped() -> None:
    work = HeldBatches()
    retry = Retry(attempts=2, backoff=1, jitter=0)
    async with batching(work, retry=retry, on_error="skip") as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(1)
        await until(lambda: work.running)
        work.end(BatchError({2: BOOM}))
        await until(lambda: len(run.source.completions) == 3)
        await run.stop()


async def test_a_failed_batch_may_pause_its_partition() -> None:
    work = HeldBatches()
    async with batching(work, on_error="pause") as run:
        run.source.feed(*some(0, 1, 2, 3, 4))
        await until(lambda: work.running)
        work.end(BatchError({1: BOOM}))
        await until(lambda: run.source.paused == [ORDERS])
        assert run.source.state_of(some(1)[0]) is RecordState.ABANDONED
        assert run.source.dropped_after == [(ORDERS, 2)]
        assert run.source.in_flight == 0
        await run.stop()


@pytest.mark.parametrize("way", ["dead letter", "skip"])
async def test_a_value_that_does_not_decode_leaves_the_batch_alone(way: str) -> None:
    seen: list[list[int]] = []

    async def handle(numbers: list[int]) -> None:
        seen.append(numbers)

    letters = Letters()
    options: dict[str, Any] = {"on_error": "skip"}
    if way == "dead letter":
        options = {"dead_letter": "dlq", "dead_letters": letters}
    async with running(handle, batch=True, max_records=3, retry=RETRY, **options) as run:
        run.source.feed(*(record(i, value=value) for i, value in enumerate([b"1", b"x", b"3"])))
        await until(lambda: len(run.source.completions) == 3)
        assert seen == [[1, 3]]
        assert letters.offsets == ([1] if way == "dead letter" else [])
        await run.stop()


@pytest.mark.parametrize("on_error", ["stop", "pause"])
async def test_values_before_one_that_does_not_decode_are_handled(
    on_error: Literal["stop", "pause"],
) -> None:
    seen: list[list[int]] = []

    async def handle(numbers: list[int]) -> None:
        seen.append(numbers)

    async with running(handle, batch=True, max_records=4, on_error=on_error) as run:
        values = [b"1", b"2", b"x", b"4"]
        records = [record(i, value=value) for i, value in enumerate(values)]
        run.source.feed(*records)
        if on_error == "stop":
            assert isinstance(await run.failure(), DecodeError)
        else:
            await until(lambda: run.source.paused)
            await run.stop()
        assert seen == [[1, 2]]
        assert run.source.commit_point(records) == 2
        assert run.source.in_flight == 0


async def test_a_batch_of_undecodable_values_calls_no_handler() -> None:
    async def handle(numbers: list[int]) -> None:
        raise AssertionError

    async with running(handle, batch=True, max_records=2, on_error="skip") as run:
        run.source.feed(record(0, value=b"x"), record(1, value=None))
        await until(lambda: len(run.source.completions) == 2)
        await run.stop()
