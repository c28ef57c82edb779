"""The leader of a large group: what takes long is computed beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import MEMBER, ScriptedGroup, foreign, orders, owned
from unit.runtime.scripted_core import ScriptedCore, ScriptedSockets, make_driver, until

from asyncrevoke.client.core.assignors.cooperative_sticky import CooperativeStickyAssignor
from asyncrevoke.client.core.io.effects import Compute, Computed
from asyncrevoke.client.core.io.outbox import LARGE_FROM
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import FatalError
from asyncrevoke.client.protocol.messages import ErrorCode, HeartbeatRequest, SyncGroupRequest


def leading(**options: int) -> ScriptedGroup:
    """A member that has just been made the leader of two."""
    group = ScriptedGroup(large_from=options.get("large_from", 0))
    group.start()
    while group.computations:  # the topics of the responses with metadata
        compute(group)
    group.give_id()
    group.respond_to_join(leads=True, others=(foreign("m-2"),))
    return group


def compute(group: ScriptedGroup) -> None:
    """Hand over what is computed first."""
    group.hear(group.computations.pop(0).run())


def test_a_small_group_is_assigned_at_once() -> None:
    group = leading(large_from=LARGE_FROM)
    assert group.computations == []
    assert len(group.planned()) == 2


def test_subscriptions_are_read_and_partitions_assigned_beside_the_event_loop() -> None:
    group = leading()
    assert group.sends(SyncGroupRequest) == []
    compute(group)  # the subscriptions
    assert group.sends(SyncGroupRequest) == []
    compute(group)  # the assignment
    plan = group.planned()
    assert plan[MEMBER] | plan["m-2"] == orders(0, 1, 2, 3)


def test_a_large_group_is_one_with_many_partitions() -> None:
    group = ScriptedGroup(partitions={"orders": LARGE_FROM})
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    assert len(group.computations) == 1
    compute(group)
    assert len(group.planned()[MEMBER]) == LARGE_FROM


def test_heartbeats_continue_while_the_assignment_is_computed() -> None:
    group = leading()
    for _ in range(3):
        before = group.count(HeartbeatRequest)
        group.respond_to_beat()
        assert group.count(HeartbeatRequest) == before + 1
    assert group.phase() is ClassicState.AWAIT_SYNC
    compute(group)
    compute(group)
    group.respond_to_sync(tp(0), tp(1))
    assert group.assigned == orders(0, 1)


@pytest.mark.parametrize("computed", [0, 1])
def test_a_rebalance_drops_what_is_being_computed_and_joins_at_once(computed: int) -> None:
    group = leading()
    for _ in range(computed):
        compute(group)
    (stale,) = group.computations
    group.rebalance()
    assert owned(group.joining()) == orders()
    group.hear(stale.run())  # for a generation that is over
    assert group.sends(SyncGroupRequest) == []
    group.computations.clear()
    group.respond_to_join(leads=True)
    compute(group)
    compute(group)
    assert group.planned() == {MEMBER: orders(0, 1, 2, 3)}


def test_leaving_drops_what_is_being_computed() -> None:
    group = leading()
    (stale,) = group.computations
    group.core.membership.fail(group.now, FatalError("the end"))
    group.hear(stale.run())
    assert group.sends(SyncGroupRequest) == []
    assert group.phase() is ClassicState.FATAL


def test_an_assignor_that_fails_beside_the_event_loop_is_fatal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("nobody to share with")

    monkeypatch.setattr(CooperativeStickyAssignor, "assign", fail)
    group = leading()
    compute(group)
    compute(group)
    with pytest.raises(FatalError, match=r"'cooperative-sticky' failed: ZeroDivisionError"):
        group.poll()


def test_a_rejected_sync_of_what_was_computed_joins_again() -> None:
    group = leading()
    compute(group)
    compute(group)
    group.respond_to_sync(error=ErrorCode.rebalance_in_progress)
    assert group.joining().member_id == MEMBER


async def test_the_driver_computes_in_a_thread_while_the_event_loop_turns() -> None:
    core, requests = ScriptedCore(), ScriptedSockets()
    driver, _ = make_driver(core, requests)
    go_on = threading.Event()
    names: list[str] = []

    def work() -> str:
        names.append(threading.current_thread().name)
        assert go_on.wait(10)
        return "done"

    driver.start()
    core.effects.append(Compute(7, work))
    core.effects.append(Compute(8, lambda: 1 // 0))
    driver.flush()
    await until(lambda: names)
    assert core.events == []  # the event loop turns meanwhile
    go_on.set()
    await until(lambda: len(core.events) == 2)
    first, second = core.events
    assert first == Computed(7, "done")
    assert isinstance(second, Computed)
    assert isinstance(second.result, ZeroDivisionError)
    assert names == ["asyncrevoke-assign"]
    await driver.aclose()


async def test_a_handler_that_does_not_end_does_not_prevent_closing() -> None:
    core, requests = ScriptedCore(), ScriptedSockets()
    driver, _ = make_driver(core, requests)
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)

    driver.start()
    core.effects.append(Compute(7, work))
    driver.flush()
    await until(begun.is_set)
    async with asyncio.timeout(5):
        await driver.aclose()
    assert core.events == []
    go_on.set()


def test_a_coordinator_that_does_not_know_what_is_wrong_is_asked_again() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.rebalance()
    group.respond_to_join(ErrorCode.unknown_server_error)
    group.advance(1.0)
    group.rejoin(0, 1)
    assert group.phase() is ClassicState.STABLE  # raised FatalError
    assert group.assigned == orders(0, 1)
