"""The ways out of a consumer: what counts, what is waited for, and for how long."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import pytest
from unit.runtime.scripted_core import ScriptedConsumer, result, scripted_consumer, until

from asyncrevoke.client.core.io.effects import CompleteRequest, Notify, NotifyKind
from asyncrevoke.client.errors import (
    BrokerError,
    ConsumerClosedError,
    FatalError,
    IllegalStateError,
)
from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.consumer import Consumer, RebalanceListener
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions, GroupProtocol


def consumer(**options: Unpack[ConsumerOptions]) -> ScriptedConsumer:
    return scripted_consumer("orders", **options)


def never(_call_id: int, _graceful: bool) -> None:
    """The group is never left."""


def only_at_once(ours: ScriptedConsumer) -> None:
    """Leaving gracefully takes for ever, leaving at once does not."""

    def on_close(call_id: int, graceful: bool) -> None:
        if not graceful:
            ours.core.close_at_once(call_id, graceful)

    ours.core.on_close = on_close


async def test_a_break_does_not_count_the_last_batch() -> None:
    async with consumer() as ours:
        ours.deliver(result(1))
        async for _ in ours:
            break
    assert ours.core.counted == 0
    assert ours.core.asked("close") == [True]
    assert ours.requests.closed


async def test_an_exception_leaves_without_waiting_for_anything() -> None:
    ours = consumer()
    with pytest.raises(ZeroDivisionError):
        async with ours:
            only_at_once(ours)
            ours.deliver(result(1))
            async for _ in ours:
                raise ZeroDivisionError
    assert ours.core.counted == 0
    assert ours.core.asked("close") == [False]
    assert ours.requests.closed


async def test_cancelling_the_loop_leaves_without_waiting_for_anything() -> None:
    ours = consumer()

    async def loop() -> None:
        async with ours:
            async for _ in ours:
                pass

    task = asyncio.create_task(loop())
    await until(lambda: hasattr(ours, "core"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ours.core.asked("close") == [False]
    assert ours.requests.closed


async def test_the_users_exception_wins_over_one_of_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = consumer()
    with pytest.raises(ZeroDivisionError):
        async with ours:
            ours.core.on_close = lambda call_id, _graceful: ours.core.effects.append(
                CompleteRequest(call_id, error=BrokerError("the commit was rejected", 29))
            )
            raise ZeroDivisionError
    assert "the commit was rejected" in caplog.text


async def test_an_error_of_closing_is_raised() -> None:
    ours = consumer()
    with pytest.raises(BrokerError, match="rejected"):
        async with ours:
            ours.core.on_close = lambda call_id, _graceful: ours.core.effects.append(
                CompleteRequest(call_id, error=BrokerError("the commit was rejected", 29))
            )
    assert ours.requests.closed


async def test_closing_from_another_task_waits_for_the_loops_next_step() -> None:
    ours = consumer()
    at_work, go_on = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    async def loop() -> None:
        async for batch in ours:
            at_work.set()
            await go_on.wait()
            seen.extend(one.offset for one in batch.records)

    await ours.start()
    task = asyncio.create_task(loop())
    ours.deliver(result(1), result(2))
    await at_work.wait()
    closing = asyncio.create_task(ours.aclose())
    for _ in range(5):
        await asyncio.sleep(0)
    assert ours.core.asked("close") == []
    go_on.set()
    await closing
    await task
    assert (seen, ours.core.counted) == ([1], 1)


async def test_closing_from_another_task_waits_for_a_stuck_loop_only_so_long() -> None:
    ours = consumer(close_timeout=0.1)
    at_work = asyncio.Event()

    async def loop() -> None:
        async for _ in ours:
            at_work.set()
            await asyncio.Event().wait()

    await ours.start()
    task = asyncio.create_task(loop())
    ours.deliver(result(1))
    await at_work.wait()
    async with asyncio.timeout(5):
        await ours.aclose()
    assert ours.core.counted == 0
    task.cancel()


async def test_closing_does_not_wait_for_a_loop_whose_task_has_ended() -> None:
    ours = consumer()

    async def loop() -> None:
        async for _ in ours:
            break

    await ours.start()
    task = asyncio.create_task(loop())
    ours.deliver(result(1))
    await task
    async with asyncio.timeout(2):
        await ours.aclose()


async def test_closing_ends_a_waiting_loop() -> None:
    ours = consumer()

    async def loop() -> int:
        return len([batch async for batch in ours])

    await ours.start()
    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    await ours.aclose()
    assert await task == 0


async def test_closing_twice_waits_for_the_same_end() -> None:
    ours = consumer()
    await ours.start()
    await asyncio.gather(ours.aclose(), ours.aclose())
    await ours.aclose()
    assert ours.core.asked("close") == [True]


async def test_closing_takes_close_timeout_at_most(caplog: pytest.LogCaptureFixture) -> None:
    ours = consumer(close_timeout=0.2)
    await ours.start()
    ours.core.on_close = never
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with asyncio.timeout(5):
            await ours.aclose()
    assert ours.core.asked("close") == [True, False]
    assert "closed without leaving the group; partitions move at session timeout" in caplog.text
    assert ours.requests.closed


async def test_what_drains_too_long_is_left_without() -> None:
    ours = consumer(close_timeout=0.2)
    await ours.start()
    only_at_once(ours)
    await ours.aclose()
    assert ours.core.asked("close") == [True, False]


async def test_cancelling_a_close_still_leaves_the_group() -> None:
    ours = consumer()
    await ours.start()
    only_at_once(ours)
    closing = asyncio.create_task(ours.aclose())
    await until(lambda: ours.core.asked("close"))
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ours.core.asked("close") == [True, False]
    assert ours.requests.closed


async def test_entering_and_leaving_may_happen_in_different_tasks() -> None:
    ours = consumer()
    await asyncio.create_task(ours.start())
    ours.deliver(result(1))
    assert len((await asyncio.create_task(ours.poll())).records) == 1
    await asyncio.create_task(ours.aclose())
    assert ours.requests.closed


async def test_closing_what_was_never_entered_does_nothing() -> None:
    await consumer().aclose()


async def test_leaving_waits_for_the_listener() -> None:
    heard: list[str] = []

    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0.02)
            heard.append("revoked")

    ours = ScriptedConsumer("orders", group_id="billing", listener=Slow())
    async with ours:

        def on_close(call_id: int, graceful: bool) -> None:
            revoked = Notify(NotifyKind.REVOKED, frozenset({TopicPartition("orders", 0)}))
            ours.core.effects.append(revoked)
            ours.core.close_at_once(call_id, graceful)

        ours.core.on_close = on_close
    assert heard == ["revoked"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_last_callback_of_a_listener_may_ask_for_offsets(protocol: GroupProtocol) -> None:
    """As in a rebalance: the partitions are released, and committed."""
    said: dict[str, object] = {}

    async def position_of(partition: TopicPartition) -> int | None:
        return ours.position(partition)

    class Asking(RebalanceListener):
        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            (partition,) = revoked
            said["assignment"] = ours.assignment()
            said["subscription"] = ours.subscription()
            said["committed"] = (await ours.committed(partition))[partition]
            said["end"] = (await ours.end_offsets(partition))[partition]
            # A timeout calls in another task.
            said["position"] = await asyncio.create_task(position_of(partition))
            for call in (ours.pause, ours.resume):
                with pytest.raises(IllegalStateError) as caught:
                    call(partition)
                said[call.__name__] = str(caught.value)
            with pytest.raises(ConsumerClosedError) as caught:
                await asyncio.create_task(ours.commit({partition: 1}))
            said["commit"] = str(caught.value)

    ours = Consumer(
        "orders",
        group_id="billing",
        listener=Asking(),
        commit_mode="manual",
        group_protocol=protocol,
    )
    async with TestConsumer(ours, partitions=1) as t:
        for number in range(3):
            await t.publish("orders", number)
        await ours.poll(timeout=5)
        await ours.commit()
        await ours.aclose()
        with pytest.raises(ConsumerClosedError, match="is closed: make another"):
            ours.assignment()
    committed = said["committed"]
    assert isinstance(committed, OffsetAndMetadata)
    assert said["subscription"] == {"orders"}
    assert (said["assignment"], committed.offset, said["end"]) == (frozenset(), 3, 3)
    assert said["position"] == 3
    for call in ("pause", "resume", "commit"):
        assert "partitions are released after their final commit" in str(said[call])


async def test_a_listener_that_closes_the_consumer_raises_an_error_that_the_step_raises() -> None:
    class Closing(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await ours.aclose()

    ours = ScriptedConsumer("orders", group_id="billing", close_timeout=1, listener=Closing())
    await ours.start()
    ours.tell(Notify(NotifyKind.ASSIGNED, frozenset({TopicPartition("orders", 0)})))
    with pytest.raises(IllegalStateError, match=r"call consumer\.stop"):
        await anext(ours)
    await ours.aclose()


async def test_a_failed_consumer_closes_at_once() -> None:
    ours = consumer()
    await ours.start()
    ours.deliver(KeyError("a bug"))
    with pytest.raises(FatalError):
        await anext(ours)
    await ours.aclose()
    assert ours.core.asked("close") == []
    assert ours.requests.closed


# -- handlers


async def test_closing_waits_for_handlers_that_have_started() -> None:
    ours = consumer()
    started, go_on = asyncio.Event(), asyncio.Event()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        started.set()
        await go_on.wait()

    await ours.start()
    assert ours.core.tracking == "until completed"
    assert ours.core.asked("subscribe") == [(("orders",), None)]
    ours.deliver(result(1))
    await started.wait()
    closing = asyncio.create_task(ours.aclose())
    for _ in range(5):
        await asyncio.sleep(0)
    assert ours.core.asked("close") == []
    go_on.set()
    await closing
    assert ours.core.asked("complete") == [1]
    assert ours.core.asked("close") == [True]


async def test_an_exception_cancels_handlers() -> None:
    ours = consumer()
    started = asyncio.Event()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        started.set()
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        async with ours:
            ours.deliver(result(1))
            await started.wait()
            raise ZeroDivisionError
    assert ours.core.asked("complete") == []
    assert ours.core.asked("abandon") == [1]


async def test_run_ends_when_it_is_stopped() -> None:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        ours.stop()

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1))
    async with asyncio.timeout(5):
        await running
    assert ours.core.asked("complete") == [1]
    assert ours.requests.closed


async def test_a_handlers_error_leaves_the_group_and_is_raised_from_run() -> None:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        raise ZeroDivisionError

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1))
    with pytest.raises(ZeroDivisionError):
        await running
    assert ours.core.asked("abandon") == [1]
    assert ours.core.asked("close") == [True]


async def test_a_handlers_error_leaves_the_group_even_if_run_is_not_awaited() -> None:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with ours:
            ours.deliver(result(1))
            await until(lambda: ours.requests.closed)


async def test_a_handler_may_end_the_process() -> None:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        raise SystemExit(3)

    await ours.start()
    ours.deliver(result(1))
    await until(lambda: ours.requests.closed)
    with pytest.raises(SystemExit):
        await ours.aclose()


async def test_a_lifespan_runs_the_handlers_as_long_as_the_application_lives() -> None:
    ours = consumer()
    handled: list[bytes] = []

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        handled.append(value)

    async with ours.lifespan(object()):
        ours.deliver(result(1))
        await until(lambda: handled)
    assert ours.requests.closed


async def test_a_lifespan_reports_a_failure_when_it_ends() -> None:
    ours = consumer()

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with ours.lifespan(object(), on_failure="report"):
            ours.deliver(result(1))
            await until(lambda: ours.requests.closed)


async def test_a_lifespan_whose_handlers_fail_terminates_the_process() -> None:
    ours = consumer()
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))

    @ours.handler("orders")
    async def handle(value: bytes) -> None:
        raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            async with ours.lifespan(object()):
                ours.deliver(result(1))
                await until(lambda: received)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


async def test_stopping_a_failed_or_closed_consumer_does_nothing() -> None:
    ours = consumer()
    await ours.start()
    ours.deliver(KeyError("a bug"))
    with pytest.raises(FatalError):
        await anext(ours)
    ours.stop()
    await ours.aclose()
    ours.stop()
