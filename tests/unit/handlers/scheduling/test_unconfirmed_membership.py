"""What was taken and has not begun, while nobody knows whether the group still has us."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    HeldWork,
    LogLines,
    RecordState,
    ScriptedSource,
    record,
    turns,
    until,
)

from asyncrevoke import Consumer, HandlerContext, Record, TopicPartition
from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.task_group import TrackedTaskGroup
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder


PAUSED = "no records until the coordinator confirms the membership"
SESSION = 6.0
FROZEN = 60.0


# -- the core -------------------------------------------------------------------------------------


def unconfirmed_member() -> ScriptedGroup:
    group = ScriptedGroup(session_timeout=SESSION)
    group.become_member(0)
    for _ in range(5):
        group.fail(group.beat(), FailureKind.TIMEOUT)
        group.advance(2.5)
    return group


def test_queued_records_may_begin_until_the_session_of_the_last_heartbeat_is_over() -> None:
    group = ScriptedGroup(session_timeout=SESSION)
    group.become_member(0)
    group.beat()
    sent_at = group.now
    group.respond_to_beat()
    group.advance(2.0)
    assert group.core.session_guard.may_begin_until(group.now) == pytest.approx(sent_at + SESSION)
    assert group.core.session_guard.may_begin_until(sent_at + SESSION + 0.01) < sent_at
    group.run_until_idle()
    assert len(group.named(PAUSED)) == 1


def test_waiters_for_the_confirmation_are_woken_once() -> None:
    group = unconfirmed_member()
    call_id = group.core.await_confirmation(group.now)
    group.run_until_idle()
    assert call_id not in group.completed
    group.advance(1.0)
    group.respond_to_beat()
    assert call_id in group.completed
    assert group.core.session_guard.may_begin_until(group.now) > group.now


def test_waiting_for_a_confirmed_membership_returns_at_once() -> None:
    group = ScriptedGroup(session_timeout=SESSION)
    group.become_member(0)
    call_id = group.core.await_confirmation(group.now)
    group.run_until_idle()
    assert call_id in group.completed


def test_nothing_waits_if_the_user_prefers_repeated_records() -> None:
    group = ScriptedGroup(session_timeout=SESSION, on_unconfirmed_membership="continue")
    group.become_member(0)
    assert group.core.session_guard.may_begin_until(group.now + 1000) == float("inf")


def test_by_kip_848_a_session_is_nine_of_the_intervals_that_the_group_asks_for() -> None:
    group = ScriptedConsumerGroup()
    group.join(0)
    group.next_beat()
    sent_at = group.now
    group.respond(tp(0), interval=1.0)
    assert group.core.session_guard.may_begin_until(group.now) == pytest.approx(sent_at + 9.0)


def test_by_kip_848_no_session_is_taken_for_longer_than_session_timeout() -> None:
    group = ScriptedConsumerGroup()
    group.join(0)
    group.next_beat()
    sent_at = group.now
    group.respond(tp(0), interval=30.0)
    assert group.core.session_guard.may_begin_until(group.now) == pytest.approx(sent_at + 45.0)


# -- handlers and task groups ---------------------------------------------------------------------


async def test_no_handler_starts_while_membership_is_unconfirmed_and_all_do_afterwards() -> None:
    work = HeldWork()
    records = [record(n, b"%d" % n) for n in range(6)]
    async with running(work, concurrency=2) as run:
        membership = run.source.membership
        membership.lasts = 0.0
        run.source.feed(*records)
        await until(lambda: len(work.running) == 2)
        membership.in_doubt = True
        work.end(*work.running)
        await turns()
        assert len(run.source.completions) == 2
        assert not work.running
        assert membership.waiting == 1
        membership.confirm()
        await until(lambda: len(work.running) == 2)
        while run.source.in_flight:
            work.end()
            await turns(1)
        assert work.started == records
        await run.stop()


async def test_records_taken_while_membership_is_unconfirmed_start_after_it_is_confirmed() -> None:
    work = HeldWork()
    async with running(work) as run:
        run.source.membership.in_doubt = True
        run.source.feed(record(0, b"a"))
        await turns()
        run.source.feed(record(1, b"b"))
        await turns()
        assert not work.started
        run.source.membership.confirm()
        await until(lambda: len(work.running) == 2)
        work.end()
        await run.stop()


async def test_a_record_lost_after_an_unconfirmed_membership_never_starts() -> None:
    work = HeldWork()
    queued = record(1, b"b")
    async with running(work, concurrency=1) as run:
        run.source.membership.lasts = 0.0
        run.source.feed(record(0, b"a"), queued)
        await until(lambda: work.running)
        run.source.membership.in_doubt = True
        work.end()
        await turns()
        run.source.feed(lost=[ORDERS])
        await until(lambda: run.source.state_of(queued) is RecordState.LOST)
        run.source.membership.confirm()
        await turns()
        assert work.offsets == [0]
        await run.stop()


async def test_handlers_stop_without_waiting_for_a_confirmed_membership() -> None:
    work = HeldWork()
    async with running(work) as run:
        run.source.membership.in_doubt = True
        run.source.feed(record(0, b"a"))
        await turns()
        await run.stop()
    assert not work.started


class SlowStrictJournal:
    """Lets a handler begin when the test has let its row be written."""

    strict = True

    def __init__(self) -> None:
        self.asked = 0
        self.written = asyncio.Event()

    async def record_start(self, _records: Sequence[Record]) -> None:
        self.asked += 1
        await self.written.wait()

    def took_note(self, *_arguments: object) -> None:
        """Of anything else."""

    handler_registered = watch_completed = handler_started = handlers_started = took_note
    loop_turn_began = loop_turn_ended = batch_completed = took_note
    failure_decided = handler_cancelled = took_note


async def test_a_handler_whose_row_is_written_while_membership_is_unconfirmed_waits() -> None:
    work, journal, one = HeldWork(), SlowStrictJournal(), record(0, b"a")
    async with running(work, recorder=cast("SessionRecorder", journal)) as run:
        run.source.feed(one)
        await until(lambda: journal.asked)
        run.source.membership.in_doubt = True
        journal.written.set()
        await turns()
        assert not work.started
        run.source.membership.confirm()
        await until(lambda: work.running)
        work.end()
        await run.stop()
    assert run.source.state_of(one) is RecordState.DONE


async def test_a_handler_never_starts_if_its_partition_is_lost_while_its_row_is_written() -> None:
    work, journal, one = HeldWork(), SlowStrictJournal(), record(0, b"a")
    async with running(work, recorder=cast("SessionRecorder", journal)) as run:
        run.source.feed(one)
        await until(lambda: journal.asked)
        run.source.membership.in_doubt = True
        journal.written.set()
        await turns()
        run.source.feed(lost=[ORDERS])
        await turns()
        run.source.membership.confirm()
        await turns()
        assert not work.started
        await run.stop()


@asynccontextmanager
async def task_group(source: ScriptedSource) -> AsyncGenerator[TrackedTaskGroup]:
    group = TrackedTaskGroup(source, RunnerContext(concurrency=2, max_in_flight=10, log=LogLines()))
    async with asyncio.timeout(5), group as tasks:
        yield tasks


async def test_a_task_group_waits_for_the_confirmation_when_it_is_left() -> None:
    source, work, one = ScriptedSource(), HeldWork(), record(0, b"a")
    source.deliver(source.batch(one))
    source.membership.in_doubt = True

    async def body() -> None:
        async with task_group(source) as tasks:
            assert await tasks.submit(work, one)

    task = asyncio.create_task(body())
    await turns()
    assert not work.started
    assert not task.done()
    source.membership.confirm()
    await until(lambda: work.running)
    work.end()
    await task
    assert source.state_of(one) is RecordState.DONE


async def test_a_task_group_ends_when_all_unconfirmed_records_are_lost() -> None:
    source, work, one = ScriptedSource(), HeldWork(), record(0, b"a")
    source.deliver(source.batch(one))
    source.membership.in_doubt = True
    groups: list[TrackedTaskGroup] = []

    async def body() -> None:
        async with task_group(source) as tasks:
            groups.append(tasks)
            assert await tasks.submit(work, one)

    task = asyncio.create_task(body())
    await turns()
    assert not task.done()
    source.deliver(source.batch(lost=[ORDERS]))
    groups[0].lose([ORDERS])
    await task
    assert not work.started


# -- a process that was frozen --------------------------------------------------------------------


def freeze() -> None:
    """The clock goes on, and nothing of the process does: then all that is due runs."""
    virtual_time().clock.now += FROZEN


async def test_a_frozen_member_starts_no_handler_before_its_membership_is_confirmed() -> None:
    began: list[tuple[int, bool]] = []
    gates = [asyncio.Event() for _ in range(3)]
    consumer = Consumer("orders", group_id="billing", concurrency=1)

    @consumer.handler("orders")
    async def handle(each: Record) -> None:
        age = consumer.health().heartbeat_age
        began.append((each.offset, age is not None and age < 45.0))
        await gates[each.offset].wait()

    async with TestConsumer(consumer, partitions=1) as t:
        for n in range(3):
            await t.publish("orders", b"%d" % n, key=b"%d" % n)
        await t.advance(1)
        assert began == [(0, True)]
        freeze()
        gates[0].set()
        await t.advance(20)
        for gate in gates:
            gate.set()
        await t.advance(20)
    assert [confirmed for _, confirmed in began] == [True] * len(began)
    assert {offset for offset, _ in began} == {0, 1, 2}


async def test_a_handler_whose_resources_open_while_membership_is_unconfirmed_does_not_start() -> (
    None
):
    began: list[bool] = []
    opening, opened = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(_shared: object) -> AsyncGenerator[str]:
        opening.set()
        await opened.wait()
        yield "a connection"

    consumer = Consumer("orders", group_id="billing", worker_resources=slow)

    @consumer.handler("orders")
    async def handle(_value: bytes, _context: HandlerContext[object, str]) -> None:
        age = consumer.health().heartbeat_age
        began.append(age is not None and age < 45.0)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"0")
        await t.advance(1)
        assert opening.is_set()
        freeze()
        opened.set()
        await t.advance(20)
        assert began
    assert all(began)


async def test_a_frozen_loop_is_handed_no_record_of_before_unless_its_membership_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        loop = asyncio.get_running_loop()
        # Its own clock is cheaper than the loop's, and does not know of virtual time.
        monkeypatch.setattr(
            "asyncrevoke.client.runtime.session.record_iterator.monotonic", loop.time
        )
        for n in range(3):
            await t.publish("orders", b"%d" % n)
        await t.advance(1)
        records = consumer.records()
        assert (await anext(records)).offset == 0
        freeze()
        following = asyncio.ensure_future(anext(records))
        while not following.done():
            await asyncio.sleep(0)
            age = consumer.health().heartbeat_age
            assert not following.done() or age is None or age < 45.0
            if not following.done():
                await t.advance(1)
        assert (await following).topic_partition == TopicPartition("orders", 0)
