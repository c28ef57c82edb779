"""The driver carries out effects, and whatever fails in it is raised, never lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from unit.runtime.scripted_core import (
    ORDERS,
    ScriptedCore,
    ScriptedSockets,
    make_driver,
    make_parts,
    send,
    until,
)

from asyncrevoke.client.core.io.effects import (
    CancelTimer,
    CompleteRequest,
    Event,
    Failed,
    FailureKind,
    Notify,
    NotifyKind,
    Replied,
    SetTimer,
    TimerFired,
    WakePoller,
)
from asyncrevoke.client.errors import ConsumerClosedError, FatalError
from asyncrevoke.consumer import RebalanceListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls
    from asyncrevoke.client.runtime.loop.driver import Driver


@pytest.fixture
def core() -> ScriptedCore:
    return ScriptedCore()


@pytest_asyncio.fixture
async def requests() -> ScriptedSockets:
    return ScriptedSockets()


@pytest_asyncio.fixture
async def driver(core: ScriptedCore, requests: ScriptedSockets) -> AsyncIterator[Driver]:
    driver, _ = make_driver(core, requests)
    driver.start()
    yield driver
    await driver.aclose()


async def test_each_send_leads_to_the_broker_s_response(core: ScriptedCore, driver: Driver) -> None:
    core.effects += [send(1), send(2)]
    driver.flush()
    await until(lambda: len(core.events) == 2)
    assert [type(event) for event in core.events] == [Replied, Replied]


async def test_a_failed_send_leads_to_the_failure(
    core: ScriptedCore, requests: ScriptedSockets, driver: Driver
) -> None:
    requests.unreachable = True
    core.effects.append(send(7))
    driver.flush()
    await until(lambda: core.events)
    assert core.events == [Failed(7, FailureKind.UNREACHABLE, "nobody there")]


async def test_effects_that_a_response_causes_are_carried_out_before_anything_else(
    core: ScriptedCore, requests: ScriptedSockets, driver: Driver
) -> None:
    def follow_up(event: Event) -> None:
        if isinstance(event, Replied) and event.request_id == 1:
            core.effects.append(WakePoller())

    core.on_event = follow_up
    core.effects.append(send(1))
    driver.flush()
    await until(lambda: core.events)
    assert driver.wake.is_set()


async def test_what_is_called_soon_runs_once_and_behind_all_that_was_woken_before(
    driver: Driver,
) -> None:
    order: list[str] = []
    ready = asyncio.Event()

    async def handler() -> None:
        await ready.wait()
        order.append("handler")

    def plan(_now: float) -> None:
        order.append("plan")

    task = asyncio.create_task(handler())
    await asyncio.sleep(0)
    driver.call_soon(plan)
    driver.call_soon(plan)
    ready.set()
    await until(lambda: "plan" in order)
    await task
    assert order == ["handler", "plan"]
    driver.call_soon(plan)
    await until(lambda: len(order) == 3)


async def test_a_cancelled_call_is_not_made_and_a_later_one_is(driver: Driver) -> None:
    calls: list[str] = []
    driver.call_soon(lambda _now: calls.append("cancelled"))
    driver.cancel_call()
    driver.cancel_call()
    driver.call_soon(lambda _now: calls.append("made"))
    await until(lambda: calls)
    assert calls == ["made"]


async def test_what_fails_when_it_is_called_soon_ends_the_consumer(driver: Driver) -> None:
    def plan(_now: float) -> None:
        raise ZeroDivisionError

    driver.call_soon(plan)
    await until(lambda: driver.error)
    assert driver.error is not None
    assert isinstance(driver.error.__cause__, ZeroDivisionError)


async def test_a_call_after_the_end_fails_and_does_not_wait_for_ever(driver: Driver) -> None:
    await driver.aclose()
    call = driver.ask(lambda _now: 1)
    with pytest.raises(ConsumerClosedError):
        await asyncio.wait_for(call, 1)


async def test_a_timer_fires_at_its_time(core: ScriptedCore, driver: Driver) -> None:
    at = driver.now() + 0.02
    core.effects.append(SetTimer("commit", at))
    driver.flush()
    await until(lambda: core.events)
    assert core.events == [TimerFired("commit")]
    assert driver.now() >= at - 0.001


async def test_a_timer_that_is_set_again_fires_once(core: ScriptedCore, driver: Driver) -> None:
    core.effects += [
        SetTimer("commit", driver.now()),
        SetTimer("commit", driver.now() + 0.01),
        SetTimer("later", driver.now() + 0.03),
    ]
    driver.flush()
    await until(lambda: TimerFired("later") in core.events)
    assert core.events.count(TimerFired("commit")) == 1


async def test_a_cancelled_timer_never_fires(core: ScriptedCore, driver: Driver) -> None:
    core.effects += [
        SetTimer("commit", driver.now() + 0.01),
        CancelTimer("commit"),
        CancelTimer("never set"),
        SetTimer("later", driver.now() + 0.03),
    ]
    driver.flush()
    await until(lambda: core.events)
    assert core.events == [TimerFired("later")]


async def test_the_spread_of_a_timer_is_drawn_again_each_time(core: ScriptedCore) -> None:
    class AlwaysHalf(random.Random):
        def random(self) -> float:
            return 0.5

    driver = make_parts(core, ScriptedSockets(), jitter=AlwaysHalf()).driver
    driver.start()
    begun = driver.now()
    core.effects.append(SetTimer("retry", begun, spread=0.1))
    driver.flush()
    await until(lambda: core.events)
    assert driver.now() - begun >= 0.049
    await driver.aclose()


async def test_a_call_brings_its_result(core: ScriptedCore, driver: Driver) -> None:
    future = driver.ask(lambda _now: 3)
    core.effects.append(CompleteRequest(3, "done"))
    driver.flush()
    assert await future == "done"


async def test_a_call_that_the_core_completes_at_once_returns_its_result(
    core: ScriptedCore, driver: Driver
) -> None:
    core.effects.append(CompleteRequest(3, "done"))
    assert await driver.ask(lambda _now: 3) == "done"


async def test_a_call_raises_its_error(core: ScriptedCore, driver: Driver) -> None:
    future = driver.ask(lambda _now: 3)
    core.effects.append(CompleteRequest(3, error=ValueError("no")))
    driver.flush()
    with pytest.raises(ValueError, match="no"):
        await future


async def test_the_result_for_a_cancelled_waiter_does_no_harm(
    core: ScriptedCore, driver: Driver
) -> None:
    driver.ask(lambda _now: 3).cancel()
    core.effects += [CompleteRequest(3, error=ValueError("unheard")), CompleteRequest(99)]
    driver.flush()
    assert driver.error is None


@pytest.mark.parametrize("where", ["handle", "take_effects"])
async def test_an_exception_in_the_core_ends_the_consumer_with_a_fatal_error(
    core: ScriptedCore, driver: Driver, where: str
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    waiting = driver.ask(lambda _now: 1)
    core.effects.append(send(1))
    if where == "handle":
        core.on_event = fail
    else:
        core.take_effects = fail  # type: ignore[method-assign,assignment]
    driver.flush()
    await until(lambda: driver.error)
    assert isinstance(driver.error, FatalError)
    assert isinstance(driver.error.__cause__, KeyError)
    assert driver.wake.is_set()
    with pytest.raises(FatalError):
        await waiting
    with pytest.raises(FatalError):
        await driver.ask(lambda _now: 2)


async def test_an_exception_in_a_request_ends_the_consumer_with_a_fatal_error(
    core: ScriptedCore, requests: ScriptedSockets, driver: Driver
) -> None:
    requests.error = ZeroDivisionError("a bug")
    core.effects.append(send(1))
    driver.flush()
    await until(lambda: driver.error)
    assert isinstance(driver.error and driver.error.__cause__, ZeroDivisionError)
    await until(lambda: requests.closed)


async def test_a_task_cancelled_by_somebody_else_is_no_silent_stall(
    core: ScriptedCore, requests: ScriptedSockets, driver: Driver
) -> None:
    requests.open.clear()
    before = asyncio.all_tasks()
    core.effects.append(send(1))
    driver.flush()
    (task,) = asyncio.all_tasks() - before
    await until(lambda: requests.sent)
    task.cancel()
    await until(lambda: driver.error)
    assert "cancelled from outside" in repr(driver.error and driver.error.__cause__)


async def test_closing_cancels_what_is_under_way_and_waits_for_it(
    core: ScriptedCore, requests: ScriptedSockets, driver: Driver
) -> None:
    requests.open.clear()
    core.effects += [send(1), SetTimer("commit", driver.now() + 0.01)]
    driver.flush()
    await until(lambda: requests.sent)
    before = asyncio.all_tasks()
    await driver.aclose()
    assert requests.cancelled == 1
    assert requests.closed
    assert driver.error is None
    assert len([task for task in before if not task.done()]) == 1  # this one
    await driver.aclose()  # and again
    assert core.events == []


async def test_nothing_reaches_the_core_after_closing(core: ScriptedCore, driver: Driver) -> None:
    core.effects.append(SetTimer("commit", driver.now()))
    driver.flush()
    await driver.aclose()
    await asyncio.sleep(0.01)
    assert core.events == []


# -- listeners


class Recorder(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.heard.append(("assigned", assigned))

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.heard.append(("revoked", revoked))


class RecorderOfLost(Recorder):
    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        self.heard.append(("lost", lost))


ALL_KINDS = [NotifyKind.ASSIGNED, NotifyKind.REVOKED, NotifyKind.LOST]


async def notify_all(listener: object) -> ListenerCalls:
    core = ScriptedCore()
    driver, calls = make_driver(core, ScriptedSockets(), listener)
    driver.start()
    core.effects += [Notify(kind, frozenset({ORDERS})) for kind in ALL_KINDS]
    driver.flush()
    await driver.listener_called(driver.now() + 5)
    await driver.aclose()
    assert not calls.pending
    return calls


async def test_callbacks_run_lost_then_revoked_then_assigned() -> None:
    listener = RecorderOfLost()
    await notify_all(listener)
    assert [name for name, _ in listener.heard] == ["lost", "revoked", "assigned"]


async def test_a_listener_without_on_lost_gets_lost_partitions_as_revoked() -> None:
    listener = Recorder()
    await notify_all(listener)
    assert [name for name, _ in listener.heard] == ["revoked", "revoked", "assigned"]


async def test_a_listener_that_is_no_rebalance_listener_may_leave_callbacks_out() -> None:
    heard: list[str] = []

    class Duck:
        def on_partitions_revoked(self, _revoked: frozenset[TopicPartition]) -> None:
            heard.append("revoked")

    await notify_all(Duck())
    assert heard == ["revoked", "revoked"]


async def test_all_callbacks_run_and_the_first_exception_is_kept() -> None:
    heard: list[str] = []

    class Failing(RebalanceListener):
        async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
            heard.append("lost")
            raise ValueError("first")

        def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            heard.append("revoked")
            raise ValueError("second")

        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            heard.append("assigned")

    calls = await notify_all(Failing())
    assert heard == ["lost", "revoked", "assigned"]
    assert str(calls.take_error()) == "first"
    assert calls.take_error() is None


async def test_a_callback_that_cancels_itself_has_failed_like_any_other() -> None:
    class Cancelling(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            raise asyncio.CancelledError

    calls = await notify_all(Cancelling())
    assert isinstance(calls.take_error(), RuntimeError)


async def test_closing_ends_a_callback_that_never_returns() -> None:
    class Stuck(RebalanceListener):
        async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            await asyncio.Event().wait()

    core = ScriptedCore()
    driver, calls = make_driver(core, ScriptedSockets(), Stuck())
    driver.start()
    core.notify(NotifyKind.ASSIGNED, ORDERS)
    driver.flush()
    await driver.listener_called(driver.now() + 0.01)
    async with asyncio.timeout(5):
        await driver.aclose()
    assert calls.pending


# -- logs


async def test_a_blocked_event_loop_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    import time

    driver = make_parts(ScriptedCore(), ScriptedSockets(), tolerated_lag=0.05).driver
    driver.start()
    time.sleep(0.15)  # noqa: ASYNC251 - the very thing that is reported
    await until(lambda: "event loop was blocked" in caplog.text)
    await driver.aclose()
