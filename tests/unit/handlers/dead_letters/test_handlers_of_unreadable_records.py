"""A record that cannot be read goes by its handler's failure policy, and no handler is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.handlers.dead_letters.test_dead_letters import HeldLetters
from unit.handlers.scripted_runner import RunningHandlers, running
from unit.handlers.scripted_source import ORDERS, HeldWork, RecordState, record, until

from asyncrevoke.client.errors import UnreadableRecordError
from asyncrevoke.client.model import UnreadableRecord
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic

if TYPE_CHECKING:
    from collections.abc import Hashable

    from asyncrevoke.client.model import Record

RETRY = Retry(attempts=5, retry_on=Exception)


def unread(offset: int, *, next_offset: int | None = None) -> UnreadableRecord:
    return UnreadableRecord(
        *ORDERS,
        offset,
        -1,
        0,
        None,
        None,
        tracker_id=1,
        next_offset=offset + 1 if next_offset is None else next_offset,
        detail="the record has more than 10000 headers",
    )


def is_done(run: RunningHandlers, each: Record) -> bool:
    return each in run.source.completions


async def test_on_error_skip_completes_an_unreadable_record_and_logs_its_offset() -> None:
    work, corrupt = HeldWork(), unread(1)
    async with running(work, on_error="skip", retry=RETRY) as run:
        run.source.feed(record(0), corrupt)
        await until(lambda: is_done(run, corrupt))
        run.source.feed(record(2, b"other"))
        await until(lambda: work.offsets == [0, 2])
        work.end()
        await run.stop()
    (fields,) = [fields for _, event, fields in run.log.lines if "skipped" in event]
    assert (fields["partition"], fields["offset"]) == ("orders-0", 1)
    error = fields["exc_info"]
    assert isinstance(error, UnreadableRecordError)
    assert (error.offset, error.next_offset) == (1, 2)
    assert "more than 10000 headers" in str(error)


async def test_the_dead_letter_of_an_unreadable_record_has_its_origin_and_error_only() -> None:
    work, letters, corrupt = HeldWork(), HeldLetters(), unread(4, next_offset=9)
    later = RetryTopic("orders.retry", delay=1)
    async with running(
        work, dead_letter="dlq", dead_letters=letters, retry=RETRY, retry_topic=later
    ) as run:
        run.source.feed(corrupt)
        await until(lambda: letters.open)
        assert run.source.state_of(corrupt) is RecordState.PENDING
        letters.complete()
        await until(lambda: is_done(run, corrupt))
        await run.stop()
    assert work.offsets == []
    ((topic, letter),) = letters.sent
    headers = dict(letter.headers)
    assert (topic, letter.key, letter.value) == ("dlq", None, None)
    assert headers["asyncrevoke-origin-offset"] == b"4"
    assert headers["asyncrevoke-error-type"] == b"asyncrevoke.errors.UnreadableRecordError"
    assert b"up to offset 8" in (headers["asyncrevoke-error-message"] or b"")
    assert headers["asyncrevoke-attempts"] == b"0"


async def test_on_error_pause_pauses_the_partition_of_an_unreadable_record() -> None:
    corrupt = unread(0)
    async with running(HeldWork(), on_error="pause") as run:
        run.source.feed(corrupt)
        await until(lambda: run.source.paused == [ORDERS])
        assert run.source.state_of(corrupt) is RecordState.ABANDONED
        await run.stop()


async def test_an_unreadable_record_stops_the_consumer_by_default() -> None:
    async with running(HeldWork(), retry=RETRY) as run:
        run.source.feed(unread(3))
        error = await run.failure()
    assert isinstance(error, UnreadableRecordError)
    assert (error.partitions, error.offset) == (frozenset({ORDERS}), 3)


@pytest.mark.parametrize("alone", ["partition", None])
async def test_a_batch_handler_receives_the_readable_records(alone: str | None) -> None:
    batches: list[list[bytes]] = []

    async def handle(values: list[bytes]) -> None:
        batches.append(values)

    async with running(
        handle, batch=True, max_records=2, max_wait=60, on_error="skip", handler_order_by=alone
    ) as run:
        corrupt = unread(1)
        run.source.feed(record(0), corrupt)
        run.source.feed(record(2))
        await until(lambda: is_done(run, corrupt) and batches == [[b"v", b"v"]])
        await run.stop()


async def test_order_by_is_not_called_with_an_unreadable_record() -> None:
    asked: list[int] = []

    def lane(asked_for: Record) -> Hashable:
        asked.append(asked_for.offset)
        assert asked_for.key is not None
        return asked_for.key

    corrupt, work = unread(1), HeldWork()
    async with running(work, order_by=lane, on_error="skip") as run:
        run.source.feed(record(0), corrupt)
        await until(lambda: is_done(run, corrupt))
        work.end()
        await run.stop()
    assert asked == [0]
    (error,) = [f["exc_info"] for _, event, f in run.log.lines if "skipped" in event]
    assert isinstance(error, UnreadableRecordError)
