"""``on_error=Pause(...)``: a partition that is paused until its failed record succeeds."""

from __future__ import annotations

from typing import Any, cast

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke import ConfigError, Consumer, Pause, Router
from asyncrevoke.testing import TestConsumer

DOWN = ConnectionError("the database is down")


async def test_a_partition_goes_on_when_its_failed_record_succeeds() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=30)) as run:
        fails, behind, later, other = (
            record(0, b"a"),
            record(1, b"a"),
            record(2, b"b"),
            record(0, partition=OTHERS),
        )
        run.source.feed(fails)
        await until(lambda: work.running == [fails])
        work.end(error=DOWN)
        await until(lambda: run.source.paused == [ORDERS])
        run.source.feed(other)
        await until(lambda: work.running == [other])
        work.end()
        for _ in range(2):
            run.clock.advance(29)
            await turns()
            assert work.running == []
            run.clock.advance(1)
            await until(lambda: work.running == [fails])
            work.end(error=DOWN)
            await until(lambda: run.clock.timers)
        assert run.source.paused == [ORDERS]
        run.clock.advance(30)
        await until(lambda: work.running == [fails])
        work.end()
        await until(lambda: run.source.paused == [])
        await until(lambda: run.source.state_of(fails) is RecordState.DONE)
        run.source.feed(behind, later)
        await until(lambda: work.running == [behind, later])
        work.end()
        await run.stop()
    events = run.log.events("warning")
    assert events == ["handler failed; partition paused until the record succeeds"], "said once"
    assert run.log.fields("partition resumed; its failed record has succeeded")["offset"] == 0


async def test_of_several_failed_records_one_is_tried_and_the_others_follow() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=30)) as run:
        first, second, behind = record(0, b"a"), record(1, b"b"), record(2, b"a")
        run.source.feed(first, second, behind)
        await until(lambda: len(work.running) == 2)
        work.end(second, error=DOWN)
        await until(lambda: run.source.paused == [ORDERS])
        work.end(first, error=DOWN)
        await turns()
        assert run.source.state_of(behind) is RecordState.DROPPED
        run.clock.advance(60)
        await until(lambda: work.running == [second])
        await turns()
        assert work.running == [second]
        work.end()
        await until(lambda: work.running == [first])
        assert run.source.paused == []
        work.end()
        await run.stop()
        assert run.source.state_of(first) is run.source.state_of(second) is RecordState.DONE


async def test_a_revocation_releases_the_partition_without_the_failed_record() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause()) as run:
        done, fails, behind = record(0, b"a"), record(1, b"b"), record(2, b"b")
        run.source.feed(done, fails, behind)
        await until(lambda: len(work.running) == 2)
        work.end(done)
        work.end(fails, error=DOWN)
        await until(lambda: run.source.paused == [ORDERS])
        run.source.feed(revoke=[ORDERS])
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(fails) is RecordState.ABANDONED
        assert run.source.commit_point([done, fails, behind]) == 1
        assert run.source.paused == [], "it is delivered again if the revocation is withdrawn"
        assert run.clock.timers == []
        await run.stop()


async def test_an_attempt_that_fails_during_a_revocation_is_the_last_one() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=5)) as run:
        fails = record(0)
        run.source.feed(fails)
        await until(lambda: work.running)
        work.end(error=DOWN)
        await until(lambda: run.clock.timers)
        run.clock.advance(5)
        await until(lambda: work.running)
        run.source.revoking.add(ORDERS)
        run.source.feed(revoke=[ORDERS])
        await turns()
        work.end(error=DOWN)
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(fails) is RecordState.ABANDONED
        assert run.clock.timers == []
        await run.stop()


async def test_a_lost_partition_has_no_further_attempt() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=5)) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        work.end(error=DOWN)
        await until(lambda: run.clock.timers)
        run.source.feed(lost=[ORDERS])
        await until(lambda: not run.clock.timers)
        run.source.paused.clear()
        run.source.feed(again := record(0, tracker_id=2))
        await until(lambda: work.running == [again])
        work.end()
        await run.stop()


async def test_the_user_can_end_the_pause_and_prolong_it() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=5)) as run:
        fails = record(0)
        run.source.feed(fails)
        await until(lambda: work.running)
        work.end(error=DOWN)
        await until(lambda: run.clock.timers)
        run.runner.pause_by_user([ORDERS])
        run.clock.advance(60)
        await turns()
        assert work.running == []
        run.source.resume_after_failure(ORDERS)
        run.runner.resume_by_user([ORDERS])
        await until(lambda: work.running == [fails])
        work.end()
        await run.stop()
        assert run.source.state_of(fails) is RecordState.DONE


async def test_stopping_does_not_wait_for_a_failed_record() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause()) as run:
        run.source.feed(fails := record(0))
        await until(lambda: work.running)
        work.end(error=DOWN)
        await until(lambda: run.clock.timers)
        await run.stop()
        assert run.source.state_of(fails) is RecordState.ABANDONED


async def test_a_batch_is_tried_again_until_it_succeeds() -> None:
    failures = [DOWN, DOWN]
    calls: list[list[bytes]] = []

    async def store(values: list[bytes]) -> None:
        calls.append(values)
        if failures:
            raise failures.pop()

    options: Any = {"batch": True, "max_records": 2, "on_error": Pause(probe_after=30)}
    async with running(store, **options) as run:
        run.source.feed(record(0), record(1))
        await until(lambda: len(calls) == 1)
        await until(lambda: run.clock.timers)
        run.clock.advance(30)
        await until(lambda: len(calls) == 2 and run.clock.timers)
        run.clock.advance(30)
        await until(lambda: run.source.paused == [])
        assert calls == [[b"v", b"v"]] * 3
        await run.stop()
        assert run.source.commit_point([record(0), record(1)]) == 2


async def test_a_value_that_does_not_decode_pauses_its_partition_until_resume() -> None:
    async def handle(value: dict[str, int]) -> None:
        raise NotImplementedError

    async with running(handle, on_error=Pause()) as run:
        run.source.feed(record(0, value=b"no json"))
        await until(lambda: run.source.paused == [ORDERS])
        await turns()
        assert run.clock.timers == []
        assert run.log.events("error") == ["handler failed; partition paused until resume()"]
        (pause,) = run.runner.failure_pauses()
        assert pause[:3] == ("orders", 0, 0)
        assert pause.error.startswith("DecodeError: ")
        assert pause.probe_after == float("inf")
        await run.stop()


async def test_a_pause_takes_virtual_time_and_health_names_the_partition() -> None:
    consumer = Consumer(group_id="billing")
    down = True
    seen: list[tuple[str, float]] = []

    @consumer.handler("orders", on_error=Pause(probe_after=60))
    async def bill(value: str) -> None:
        seen.append((value, round(t.time - began)))
        if down and value == "x":
            raise DOWN

    async with TestConsumer(consumer) as t:
        began = t.time
        await t.publish("orders", "x", partition=0)
        await t.publish("orders", "y", partition=0)
        await t.publish("orders", "z", partition=1)
        assert [
            str(paused_partition) for paused_partition in consumer.health().paused_partitions
        ] == ["orders-0"]
        await t.advance(70)
        assert not t.committed("orders", 0)
        (pause,) = consumer.health().failure_pauses
        assert pause[:3] == ("orders", 0, 0)
        assert pause.handler.endswith("bill")
        assert pause[4:] == ("ConnectionError: the database is down", 2, 60)
        details = consumer.probe().details()
        assert details["ready"]
        because = "has failed at offset 0 (ConnectionError): paused until it succeeds"
        assert details["paused_because"] == {"orders-0": f"{pause.handler} {because}"}
        down = False
        await t.advance(60)
        assert t.committed("orders", 0) == 2
        assert t.committed("orders", 1) == 1
        assert consumer.health().paused_partitions == frozenset()
        assert consumer.health().failure_pauses == ()
        assert [call.outcome for call in t.calls_of(bill)] == ["paused", "ok", "paused", "ok", "ok"]
    assert seen == [("x", 0), ("z", 0), ("x", 60), ("x", 120), ("y", 120)]


async def test_a_withdrawn_or_finished_revocation_leaves_nothing_paused() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", on_error=Pause(probe_after=600))
    async def bill(value: str) -> None:
        raise DOWN

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert "orders-0" not in {str(each) for each in t.assignment()}
        assert not t.committed("orders", 0)


def test_a_pause_that_cannot_work_is_rejected() -> None:
    for wrong in (0, -1, "30", float("nan"), True):
        with pytest.raises(ConfigError, match="more than 0"):
            Pause(probe_after=cast("float", wrong))

    with pytest.raises(ConfigError, match="leave out one of them"):
        Router().handler("orders", on_error=Pause(), dead_letter="orders.dlq")


async def test_an_outage_logs_once_for_each_type_of_error() -> None:
    work = HeldWork()
    async with running(work, on_error=Pause(probe_after=30)) as run:
        run.source.feed(record(0, b"a"), record(1, b"b"))
        await until(lambda: len(work.running) == 2)
        work.end(error=DOWN)
        for error in (DOWN, DOWN, TimeoutError("late"), DOWN, TimeoutError("late")):
            await until(lambda: run.clock.timers)
            run.clock.advance(30)
            await until(lambda: work.running)
            work.end(error=error)
        await until(lambda: run.clock.timers)
        kinds = [
            type(fields["exc_info"]).__name__
            for level, _, fields in run.log.lines
            if level == "warning"
        ]
        assert kinds == ["ConnectionError", "TimeoutError"]
        await run.stop()


async def test_health_says_which_failure_has_paused_a_partition_until_resume() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", on_error="pause")
    async def bill(value: str) -> None:
        raise DOWN

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        await t.advance(1)
        (because,) = consumer.probe().details()["paused_because"].values()
        assert because.endswith("(ConnectionError): paused until resume()")
        await t.revoke(("orders", 0))
        assert consumer.health().failure_pauses == ()
