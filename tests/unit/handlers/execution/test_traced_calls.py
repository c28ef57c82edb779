"""Which calls go through a tracer, on the path that has nothing else around handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    LogLines,
    RecordState,
    ScriptedSource,
    record,
    turns,
)

from asyncrevoke import Record, Retry, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import Observers, Tracer
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.task_group import TrackedTaskGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class OddOffsets(Tracer):
    """Wants the records with odd offsets, and writes down what is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[TopicPartition, int, int]] = []

    def wants(self, record: Record) -> bool:
        return record.offset % 2 == 1

    async def call(
        self,
        handler: str,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
    ) -> None:
        for each in records:
            self.calls.append((each.topic_partition, each.offset, attempt))
        await call()


def observers(tracer: Tracer) -> Observers:
    log = cast("Any", LogLines())
    return Observers([tracer], log, cast("Any", None))


async def test_those_that_it_has_chosen_are_called_through_it_once() -> None:
    tracer, seen = OddOffsets(), list[int]()

    async def bill(record: Record) -> None:
        seen.append(record.offset)

    async with running(bill, observers=observers(tracer)) as run:
        run.source.feed(*[record(offset, b"%d" % (offset % 3)) for offset in range(20)])
        await turns()
        assert sorted(seen) == list(range(20))
        assert sorted(tracer.calls) == [(ORDERS, offset, 1) for offset in range(1, 20, 2)]
        await run.stop()


async def test_each_further_attempt_is_a_call_of_its_own() -> None:
    tracer, work = OddOffsets(), HeldWork()
    async with running(
        work, observers=observers(tracer), retry=Retry(attempts=3, backoff=1, jitter=0)
    ) as run:
        one, two = record(1, b"a"), record(2, b"b")
        run.source.feed(one, two)
        await turns()
        work.end(error=LookupError())
        await turns()
        run.clock.advance(2)
        await turns()
        assert [call[1:] for call in tracer.calls] == [(1, 1), (1, 2)]
        assert sorted(work.offsets) == [1, 1, 2, 2]
        work.end()
        await run.stop()


@pytest.mark.parametrize("how", ["revoke", "lost"])
async def test_what_is_dropped_before_it_was_called_is_not_remembered(how: str) -> None:
    tracer, work = OddOffsets(), HeldWork()
    async with running(work, observers=observers(tracer), concurrency=1) as run:
        mine = [record(offset) for offset in range(6)]
        run.source.feed(*mine, record(7, partition=OTHERS))
        await turns()
        run.source.feed(**cast("Any", {how: [ORDERS]}))
        await turns()
        if how == "revoke":
            assert [run.source.state_of(each) for each in mine[1:]] == [RecordState.DROPPED] * 5
            work.end()
            await turns()
        work.end()
        await run.stop()
    # And running() looks that nothing is remembered.
    assert tracer.calls == [(OTHERS, 7, 1)]


async def test_tasks_of_a_task_group_are_chosen_one_by_one() -> None:
    tracer, source = OddOffsets(), ScriptedSource()
    context = RunnerContext(
        concurrency=4, max_in_flight=10, log=LogLines(), observers=observers(tracer)
    )
    tasks = TrackedTaskGroup(source, context)

    async def bill(record: Record) -> None: ...

    records = [record(offset) for offset in range(4)]
    source.deliver(source.batch(*records))
    async with tasks:
        for each in records:
            assert await tasks.submit(bill, each)
    assert [call[1:] for call in tracer.calls] == [(1, 1), (3, 1)]
