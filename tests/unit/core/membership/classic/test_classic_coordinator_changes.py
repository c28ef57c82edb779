"""A classic member whose coordinator moves before the generation that it has joined is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import MEMBER, ScriptedGroup, orders, with_work

from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import FencedInstanceError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


def _moves(group: ScriptedGroup) -> None:
    """A heartbeat hears that it is another broker."""
    send = group.beat()
    group.coordinator = 1
    group.respond_to_beat(ErrorCode.not_coordinator, send=send)


def _loads(group: ScriptedGroup) -> None:
    """A heartbeat hears that the same broker has become the coordinator anew."""
    group.respond_to_beat(ErrorCode.coordinator_load_in_progress)


@BOTH
@pytest.mark.parametrize("changes", [_moves, _loads])
def test_only_the_coordinator_that_has_responded_to_the_join_is_sent_the_sync(
    eager: bool, changes: Callable[[ScriptedGroup], None]
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    changes(group)
    # It was on its way when the coordinator moved.
    first = group.respond_to_join()
    assert not group.sends(SyncGroupRequest)
    again = group.joining()
    assert (again.member_id, again.protocols) == (MEMBER, first.protocols)
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(1))
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == orders(0, 1)
    assert group.step().lost == frozenset()


@pytest.mark.parametrize("kind", [HeartbeatRequest, OffsetCommitRequest])
def test_an_error_for_a_request_sent_before_the_sync_does_not_end_a_reused_generation(
    kind: type[HeartbeatRequest | OffsetCommitRequest],
) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    group.respond_to_join()
    group.respond_to_sync(error=ErrorCode.not_coordinator)
    group.advance(1.0)
    group.beat()
    group.core.commit(group.now)
    group.run_until_idle()
    send, request = group.only(kind)
    group.respond_to_join(same_generation=True)
    group.respond_to_sync(tp(0), tp(1))
    assert request.generation == 2 == group.core.group_metadata().generation
    if kind is HeartbeatRequest:
        group.respond_to_beat(ErrorCode.illegal_generation, send=send)
    else:
        group.respond_to_commit(ErrorCode.illegal_generation, send=send)
    assert group.phase() is ClassicState.STABLE
    assert group.step().lost == frozenset()


def test_by_the_generation_that_was_assigned_last_it_commits_while_the_others_are_waited_for() -> (
    None
):
    group, _ = with_work(eager=False)
    group.rebalance()
    group.respond_to_join()
    group.respond_to_sync(error=ErrorCode.not_coordinator)
    group.advance(1.0)
    send = group.beat()
    parked = group.joining()
    group.respond_to_beat(ErrorCode.illegal_generation, send=send)
    group.core.commit(group.now)
    group.run_until_idle()
    assert group.only(OffsetCommitRequest)[1].generation == 1
    assert group.respond_to_commit() == {tp(0): 1}
    beat = group.beat()
    assert group.only(HeartbeatRequest)[1].generation == 1
    group.respond_to_beat(send=beat)
    group.advance(3.0)
    assert group.joining() is parked
    group.rejoin(0, 1)
    assert group.step().lost == frozenset()


def test_an_error_for_a_request_sent_after_the_sync_counts() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.respond_to_beat(ErrorCode.illegal_generation)
    assert group.step().lost == orders(0)


@pytest.mark.parametrize("changes", [_moves, _loads])
def test_a_static_member_whose_new_id_was_not_written_joins_as_a_new_one(
    changes: Callable[[ScriptedGroup], None],
) -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    group.respond_to_join()
    changes(group)
    group.respond_to_sync(error=ErrorCode.coordinator_load_in_progress)
    group.advance(1.0)
    assert group.joining().member_id == MEMBER
    # The next one knows the process before us.
    group.respond_to_join(ErrorCode.fenced_instance_id)
    assert group.joining().member_id == ""
    group.rejoin(0)
    assert group.assigned == orders(0)


def test_a_static_member_whose_id_was_written_fails_when_another_one_has_its_place() -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    group.respond_to_join()
    group.respond_to_sync(tp(0))
    _moves(group)
    group.rebalance()
    group.respond_to_join(ErrorCode.fenced_instance_id)
    assert group.phase() is ClassicState.FATAL
    assert group.step().lost == orders(0)
    with pytest.raises(FencedInstanceError):
        group.poll()


def test_a_static_member_takes_its_place_back_once() -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    group.respond_to_join()
    _moves(group)
    group.respond_to_sync(error=ErrorCode.coordinator_load_in_progress)
    group.advance(1.0)
    group.respond_to_join(ErrorCode.fenced_instance_id)
    group.respond_to_join()
    group.respond_to_sync(error=ErrorCode.unknown_server_error)
    group.advance(1.0)
    group.respond_to_join(ErrorCode.fenced_instance_id)
    assert group.phase() is ClassicState.FATAL
