"""The tracked task group: retries, dead letters and paused partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from unit.handlers.task_groups.scripted_task_group import Setting


async def test_a_failed_task_is_called_again_while_its_lane_waits(setting: Setting) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))
    async with setting.group(retry=Retry(attempts=2, backoff=4)) as tasks:
        for each in (a0, a1, b):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        setting.work.end(b)
        await turns()
        assert setting.source.completions == [b]
        assert tasks.in_flight == 2, "what waits for its next attempt is in flight"
        setting.clock.advance(3.9)
        await turns()
        assert setting.work.running == []
        setting.clock.advance(0.2)
        await turns()
        assert setting.work.running == [a0]
        setting.work.end()
        await until(lambda: a1 in setting.work.running)
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
    assert setting.source.completions == [b, a0, a1]


async def test_a_record_that_waits_for_a_retry_is_abandoned_when_its_partition_is_revoked(
    setting: Setting,
) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))
    async with setting.group(retry=Retry(attempts=None, backoff=4)) as tasks:
        for each in (a0, a1, b):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        tasks.observe(setting.source.batch(revoke=[ORDERS]))
        assert {setting.source.state_of(each) for each in (a0, a1)} == {RecordState.ABANDONED}
        assert tasks.in_flight == 1
        setting.work.end(b, error=ValueError("while it is revoked"))
        await turns()
        assert setting.source.state_of(b) is RecordState.ABANDONED
    assert setting.clock.timers == []


async def test_leaving_abandons_records_that_wait_for_a_retry_and_waits_for_other_tasks(
    setting: Setting,
) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))

    async def body() -> None:
        async with setting.group(retry=Retry(attempts=None, backoff=4)) as tasks:
            for each in (a0, a1, b):
                await tasks.submit(setting.work, each)
            await turns()
            setting.work.end(a0, error=ValueError("boom"))

    leaving = asyncio.create_task(body())
    await until(lambda: setting.work.running == [b])
    await turns()
    setting.work.end()
    await leaving
    assert setting.source.completions == [b]
    assert {setting.source.state_of(each) for each in (a0, a1)} == {RecordState.ABANDONED}
    assert setting.clock.timers == []


async def test_a_stop_ends_retries_with_the_next_failure(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))
    async with setting.group(retry=Retry(attempts=None, backoff=1)) as tasks:
        await tasks.submit(setting.work, one)
        await turns()
        setting.source.stop()
        setting.work.end(error=ValueError("boom"))
        await until(lambda: tasks.in_flight == 0)
    assert setting.source.state_of(one) is RecordState.ABANDONED


async def test_a_record_is_written_to_the_dead_letter_topic_after_its_last_attempt(
    setting: Setting,
) -> None:
    a0, a1 = setting.delivered(record(0), record(1))
    async with setting.group(dead_letter="dlq", retry=Retry(attempts=2, backoff=1)) as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, a1)
        for _ in range(2):
            await turns()
            setting.work.end(a0, error=ValueError("boom"))
            await turns()
            setting.clock.advance(2)
        await until(lambda: a1 in setting.work.running)
        setting.work.end()
    assert setting.source.completions == [a0, a1]
    ((topic, letter),) = setting.letters.sent
    assert (topic, letter.value) == ("dlq", b"v")


async def test_a_record_whose_dead_letter_cannot_be_sent_is_held(setting: Setting) -> None:
    a0, a1, other = setting.delivered(record(0), record(1), record(0, partition=OTHERS))
    setting.letters.rejects = ConnectionError("no broker")
    async with setting.group(dead_letter="dlq") as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, other)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        assert not setting.source.paused
        (held,) = tasks.unwritten()
        assert (held.records, held.partitions) == (1, frozenset([ORDERS]))
        await tasks.submit(setting.work, a1)
        await turns()
        assert setting.work.running == [other], "its key waits"
        setting.work.end(other)
    assert setting.source.state_of(a0) is RecordState.ABANDONED
    assert setting.source.completions == [other]


async def test_a_failure_may_pause_its_partition(setting: Setting) -> None:
    a0, b, a1 = setting.delivered(record(0), record(1, b"b"), record(2))
    async with setting.group(on_error="pause") as tasks:
        for each in (a0, b, a1):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        assert setting.work.running == [b], "what runs of it goes on"
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
        assert setting.source.paused == [ORDERS]
        setting.source.paused.clear()
        tasks.resume_by_user([ORDERS])
        (again,) = setting.delivered(record(0))
        assert await tasks.submit(setting.work, again)
        await turns()
        setting.work.end()
    assert setting.source.state_of(a1) is RecordState.ABANDONED
    assert setting.source.completions == [b, again]


async def test_after_a_pause_by_a_failure_one_by_the_user_delays_no_task(setting: Setting) -> None:
    (first,) = setting.delivered(record(0))
    async with setting.group(on_error="pause") as tasks:
        await tasks.submit(setting.work, first)
        await turns()
        setting.work.end(first, error=ValueError("boom"))
        await until(lambda: setting.source.paused == [ORDERS])
        tasks.resume_by_user([ORDERS])
        again, behind = setting.delivered(record(0), record(1, b"b"))
        for each in (again, behind):
            assert await tasks.submit(setting.work, each)
        await until(lambda: len(setting.work.running) == 2)
        setting.work.end()
