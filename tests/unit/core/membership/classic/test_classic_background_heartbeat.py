"""What may be sent for a classic member while its event loop is blocked, and what answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_group import ScriptedGroup, orders, owned

from asyncrevoke.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Failed,
    FailureKind,
    NotifyKind,
)
from asyncrevoke.core.membership.classic.state_table import ClassicState
from asyncrevoke.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def member() -> ScriptedGroup:
    group = ScriptedGroup()
    group.become_member(0, 1)
    return group


def standby_of(group: ScriptedGroup) -> BackgroundHeartbeat:
    standby = group.standby
    assert standby is not None
    assert standby.message is not None
    return standby


def stands_down(group: ScriptedGroup) -> bool:
    return group.standby is None or group.standby.message is None


def stood_in(
    group: ScriptedGroup,
    reply: ErrorCode | Failed = ErrorCode.none,
    *,
    standby: BackgroundHeartbeat | None = None,
    ago: float = 0.0,
) -> None:
    """The loop runs again, and hears what was answered."""
    answer = HeartbeatResponse(error=reply) if isinstance(reply, ErrorCode) else reply
    standby = standby or standby_of(group)
    group.hear(BackgroundHeartbeatReply(standby.heartbeat_id, group.now - ago, answer))


def test_the_heartbeat_of_the_running_generation_may_be_sent_for_us() -> None:
    group = member()
    standby = standby_of(group)
    sent = group.beat()
    assert (standby.message, standby.node) == (sent.message, sent.node)
    assert standby.interval == group.config.heartbeat_interval
    assert standby.timeout == sent.timeout


def test_before_there_is_a_generation_nothing_may_be_sent() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    assert group.standby is None


def test_each_generation_replaces_it_as_soon_as_it_is_known() -> None:
    group = member()
    before = standby_of(group)
    group.rebalance()
    assert standby_of(group) is before, "the old generation is good until the join is answered"
    group.answer_join()
    assert standby_of(group).message == HeartbeatRequest(
        group_id="billing", generation=2, member_id="member-1", group_instance_id=None
    )


def test_a_coordinator_that_has_moved_replaces_it() -> None:
    group = member()
    group.coordinator = 2
    group.answer_beat(ErrorCode.not_coordinator)
    group.answer_beat()
    node = standby_of(group).node
    assert node is not None
    assert node.node_id == 2


def test_it_is_not_published_again_by_each_heartbeat() -> None:
    group = member()
    group.pulse = ErrorCode.none
    before = standby_of(group)
    group.advance(30.0)
    assert standby_of(group) is before


def test_only_what_leaves_the_membership_alone_may_be_repeated_after() -> None:
    standby = standby_of(member())
    after = {error: standby.next_message(HeartbeatResponse(error=error)) for error in ErrorCode}
    again = {error for error, message in after.items() if message == standby.message}
    assert set(after.values()) == {standby.message, None}
    assert again == {ErrorCode.none, ErrorCode.rebalance_in_progress}


ENDS: dict[str, Callable[[ScriptedGroup], object]] = {
    "closed": ScriptedGroup.close,
    "unsubscribed": ScriptedGroup.unsubscribe,
    "put out": lambda group: group.answer_beat(ErrorCode.unknown_member_id),
    "fenced": lambda group: group.answer_beat(ErrorCode.fenced_instance_id),
}


@pytest.mark.parametrize("end", ENDS)
def test_after_the_membership_nothing_may_be_sent(end: str) -> None:
    group = member()
    ENDS[end](group)
    assert stands_down(group)


def test_a_confirmation_counts_from_when_it_was_asked_for() -> None:
    group = member()
    group.now += 40.0
    stood_in(group, ago=0.5)
    assert group.core.health(group.now).heartbeat_age == pytest.approx(0.5)
    assert group.assigned == orders(0, 1)


def test_a_rebalance_announced_by_a_background_heartbeat_is_joined() -> None:
    group = member()
    stood_in(group, ErrorCode.rebalance_in_progress)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert owned(group.joining()) == orders(0, 1)
    stood_in(group, ErrorCode.rebalance_in_progress)
    assert group.phase() is ClassicState.AWAIT_JOIN


def test_an_error_for_the_current_membership_ends_it() -> None:
    group = member()
    group.now += 0.1
    stood_in(group, ErrorCode.unknown_member_id)
    assert group.step().lost == orders(0, 1)


def test_an_error_for_a_former_membership_is_ignored() -> None:
    group = member()
    old = standby_of(group)
    group.rebalance()
    group.rejoin(0, 1)
    for error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
        stood_in(group, error, standby=old)
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == orders(0, 1)


def test_an_error_during_a_join_waits_for_the_join_response() -> None:
    group = member()
    group.rebalance()
    stood_in(group, ErrorCode.illegal_generation)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.assigned == orders(0, 1)
    group.rejoin(0, 1)
    assert group.phase() is ClassicState.STABLE


def test_a_response_that_comes_after_leaving_is_dropped() -> None:
    group = member()
    old = standby_of(group)
    group.close()
    assert group.count(LeaveGroupRequest) == 1
    stood_in(group, ErrorCode.unknown_member_id, standby=old)
    group.answer_leave()
    assert not group.heard(NotifyKind.LOST)


@pytest.mark.parametrize(
    "reply",
    [Failed(0, FailureKind.DISCONNECTED, "gone"), ErrorCode.not_coordinator],
    ids=["no answer", "moved"],
)
def test_a_failed_background_heartbeat_ends_no_membership_and_the_loop_sends_its_own(
    reply: ErrorCode | Failed,
) -> None:
    group = member()
    before = group.count(HeartbeatRequest)
    stood_in(group, reply)
    group.advance(0.01)
    assert group.count(HeartbeatRequest) == before + 1
    assert group.phase() is ClassicState.STABLE
    assert group.named("heartbeat from the thread failed; sending one from the event loop")
