"""What one step of the iterator does (polling rules R1 to R8), on a scripted core."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.runtime.scripted_core import ORDERS, ScriptedConsumer, result, scripted_consumer, until

from asyncrevoke.client.core.io.effects import Notify, NotifyKind
from asyncrevoke.client.errors import (
    ConsumerClosedError,
    FatalError,
    GroupAuthorizationError,
    OffsetOutOfRangeError,
)
from asyncrevoke.consumer import RebalanceListener

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import CommitMode, ConsumerOptions
    from asyncrevoke.client.model import TopicPartition


def consumer(**options: Unpack[ConsumerOptions]) -> ScriptedConsumer:
    return scripted_consumer("orders", **options)


async def test_a_batch_counts_when_the_next_step_starts() -> None:
    async with consumer() as ours:
        ours.deliver(result(1), result(2))
        await anext(ours)
        assert ours.core.counted == 0
        await anext(ours)
        assert ours.core.counted == 1


async def test_records_are_handled_before_the_next_fetch_is_planned() -> None:
    async with consumer() as ours:
        ready = asyncio.Event()
        plans_before_handler: list[int] = []

        async def handler() -> None:
            await ready.wait()
            plans_before_handler.append(ours.core.plans)

        task = asyncio.create_task(handler())
        await asyncio.sleep(0)
        ours.core.owes_plan = True
        ours.deliver(result(1))
        await anext(ours)
        ready.set()
        await until(lambda: ours.core.plans)
        await task
        assert plans_before_handler == [0]


async def test_a_waiting_step_returns_what_arrives() -> None:
    async with consumer() as ours:
        waiting = asyncio.create_task(anext(ours))
        await asyncio.sleep(0)
        ours.deliver(result(1, 2))
        assert [r.offset for r in (await waiting).records] == [1, 2]


async def test_cancelling_a_waiting_step_loses_nothing() -> None:
    async with consumer() as ours:
        waiting = asyncio.create_task(anext(ours))
        await asyncio.sleep(0)
        waiting.cancel()
        ours.deliver(result(1, lost=[ORDERS]))  # arrives in the same turn of the loop
        with pytest.raises(asyncio.CancelledError):
            await waiting
        batch = await anext(ours)
        assert [r.offset for r in batch.records] == [1]
        assert batch.lost == {ORDERS}


async def test_a_timeout_around_a_step_loses_nothing() -> None:
    async with consumer() as ours:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(ours)
        ours.deliver(result(1))
        assert len((await anext(ours)).records) == 1


async def test_a_poll_returns_an_empty_result_at_its_timeout() -> None:
    async with consumer() as ours:
        batch = await ours.poll(timeout=0.01)
        assert list(batch.records) == []
        ours.deliver(result(1))
        assert len((await ours.poll(timeout=0)).records) == 1


async def test_a_loop_that_never_waits_lets_other_tasks_run_every_5_ms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with consumer() as ours:
        ours.deliver(result(1))
        await anext(ours)
        now = asyncio.get_running_loop().time() + 1.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        turns_after_steps: list[int] = []
        for _ in range(7):
            ours.core.results.append(result(1))
            await anext(ours)
            turns_after_steps.append(turns)
            now += 0.003
        monkeypatch.undo()
        task.cancel()
        assert turns_after_steps == [1, 1, 2, 2, 3, 3, 4]


async def test_errors_of_partitions_are_raised_and_the_next_step_returns_records() -> None:
    async with consumer() as ours:
        ours.deliver(OffsetOutOfRangeError([ORDERS]), result(1))
        with pytest.raises(OffsetOutOfRangeError):
            await anext(ours)
        assert len((await anext(ours)).records) == 1


async def test_a_fatal_error_of_the_core_is_raised_as_it_is() -> None:
    async with consumer() as ours:
        ours.deliver(GroupAuthorizationError("no"))
        with pytest.raises(GroupAuthorizationError):
            await anext(ours)


async def test_a_bug_in_the_core_is_raised_by_every_further_step() -> None:
    ours = consumer()
    await ours.start()
    ours.deliver(KeyError("a bug"))
    for _ in range(2):
        with pytest.raises(FatalError):
            await anext(ours)
    with pytest.raises(FatalError):
        await ours.commit()
    await ours.aclose()


async def test_a_waiting_step_raises_a_failure_of_the_driver() -> None:
    ours = consumer()
    await ours.start()
    waiting = asyncio.create_task(anext(ours))
    await asyncio.sleep(0)
    ours.session._driver.fail(RuntimeError("a bug"))
    with pytest.raises(FatalError, match="a bug"):
        await waiting
    await ours.aclose()


class Failing(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        self.heard.append("lost")
        raise ValueError("first")

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.heard.append("assigned")
        raise ValueError("second")


async def test_the_first_error_of_a_listener_is_raised_by_the_next_step() -> None:
    listener = Failing()
    ours = ScriptedConsumer("orders", group_id="billing", listener=listener)
    async with ours:
        ours.tell(
            Notify(NotifyKind.ASSIGNED, frozenset({ORDERS})),
            Notify(NotifyKind.LOST, frozenset({ORDERS})),
        )
        with pytest.raises(ValueError, match="first"):
            await anext(ours)
        assert listener.heard == ["lost", "assigned"]
        ours.deliver(result(1))
        assert len((await anext(ours)).records) == 1


async def test_stop_counts_the_batch_whose_next_step_comes() -> None:
    async with consumer() as ours:
        ours.deliver(result(1))
        seen = 0
        async for batch in ours:
            seen += len(batch.records)
            ours.stop()
        assert (seen, ours.core.counted) == (1, 1)
        assert not ours.session.closing
        with pytest.raises(ConsumerClosedError):
            await ours.poll()


async def test_stop_ends_a_waiting_step() -> None:
    async with consumer() as ours:
        waiting = asyncio.create_task(ours.poll())
        await asyncio.sleep(0)
        ours.stop()
        with pytest.raises(ConsumerClosedError):
            await waiting


# -- single records


async def test_the_core_reports_how_many_records_of_a_step_the_user_has() -> None:
    async with consumer() as ours:
        ours.deliver(result(1, 2), result(3))
        seen: list[int] = []
        async for one in ours.records():
            assert ours.core.reader is not None
            assert ours.core.reader.returned == len(seen) % 2 + 1
            seen.append(one.offset)
            if one.offset == 3:
                break
        assert seen == [1, 2, 3]
        assert ours.core.counted == 1


async def test_the_next_record_is_asked_for_by_a_step_when_the_core_wants_it_so() -> None:
    async with consumer() as ours:
        ours.deliver(result(1, 2), result(5))
        records = ours.records()
        assert (await anext(records)).offset == 1
        assert ours.core.reader is not None
        ours.core.reader.end()
        assert ours.core.reader.returned == 1
        assert (await anext(records)).offset == 5


async def test_cancelling_a_wait_for_a_single_record_loses_none() -> None:
    async with consumer() as ours:
        records = ours.records()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(records)
        ours.deliver(result(1, 2))
        assert [(await anext(records)).offset for _ in range(2)] == [1, 2]


async def test_a_second_loop_over_records_continues_after_the_first() -> None:
    async with consumer() as ours:
        ours.deliver(result(1, 2, 3))
        async for one in ours.records():
            assert one.offset == 1
            break
        assert (await anext(ours.records())).offset == 2


async def test_single_records_given_to_a_task_group_count_when_their_tasks_end() -> None:
    gate = asyncio.Event()

    async def work(_one: object) -> None:
        await gate.wait()

    async with consumer() as ours, ours.task_group() as tasks:
        ours.deliver(result(1, 2))
        records = ours.records()
        await tasks.submit(work, await anext(records))
        await anext(records)
        assert ours.core.tracking == "until done"
        assert ours.core.asked("complete") == []
        gate.set()
        await until(lambda: ours.core.asked("complete") == [1])


@pytest.mark.parametrize("mode", ["ack", "manual"])
async def test_in_other_modes_single_records_count_when_the_user_says_so(mode: CommitMode) -> None:
    async with consumer(commit_mode=mode) as ours:
        ours.deliver(result(1, 2))
        records = ours.records()
        await anext(records)
        await anext(records)
        assert ours.core.asked("complete") == []


# -- task groups


async def test_a_task_groups_records_count_when_their_tasks_end() -> None:
    gate = asyncio.Event()

    async def work(_one: object) -> None:
        await gate.wait()

    async with consumer() as ours, ours.task_group(concurrency=2) as tasks:
        ours.deliver(result(1))
        batch = await anext(ours)
        for one in batch.records:
            assert await tasks.submit(work, one)
        assert [one.offset for one in ours.core.held] == [1]
        assert ours.core.asked("complete") == []
        gate.set()
        await until(lambda: ours.core.asked("complete") == [1])


async def test_tasks_of_a_lost_partition_are_cancelled_without_waiting_for_a_step() -> None:
    cancelled = asyncio.Event()

    async def work(_one: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with consumer() as ours, ours.task_group() as tasks:
        ours.deliver(result(1))
        for one in (await anext(ours)).records:
            await tasks.submit(work, one)
        await asyncio.sleep(0)
        ours.tell(Notify(NotifyKind.LOST, frozenset({ORDERS})))
        async with asyncio.timeout(5):
            await cancelled.wait()
