"""What may be sent for a classic member while its loop is blocked, and what responses mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_group import ScriptedGroup, orders, owned

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Failed,
    FailureKind,
    NotifyKind,
)
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
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


def background_heartbeat_of(group: ScriptedGroup) -> BackgroundHeartbeat:
    heartbeat = group.background_heartbeat
    assert heartbeat is not None
    return heartbeat


def sends_none(group: ScriptedGroup) -> bool:
    return group.background_heartbeat is None


def thread_received(
    group: ScriptedGroup,
    reply: ErrorCode | Failed = ErrorCode.none,
    *,
    heartbeat: BackgroundHeartbeat | None = None,
    ago: float = 0.0,
) -> None:
    """The loop runs again, and receives this response."""
    response = HeartbeatResponse(error=reply) if isinstance(reply, ErrorCode) else reply
    heartbeat = heartbeat or background_heartbeat_of(group)
    group.hear(BackgroundHeartbeatReply(heartbeat.heartbeat_id, group.now - ago, response))


def test_the_heartbeat_of_the_running_generation_may_be_sent_for_us() -> None:
    group = member()
    heartbeat = background_heartbeat_of(group)
    sent = group.beat()
    assert (heartbeat.message, heartbeat.node) == (sent.message, sent.node)
    assert heartbeat.interval == group.config.heartbeat_interval
    assert heartbeat.timeout == sent.timeout


def test_before_there_is_a_generation_nothing_may_be_sent() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    assert group.background_heartbeat is None


def test_each_generation_replaces_it_as_soon_as_it_is_known() -> None:
    group = member()
    before = background_heartbeat_of(group)
    group.rebalance()
    assert background_heartbeat_of(group) is before, (
        "the old generation is good until the response to the join"
    )
    group.respond_to_join()
    assert background_heartbeat_of(group).message == HeartbeatRequest(
        group_id="billing", generation=2, member_id="member-1", group_instance_id=None
    )


def test_a_coordinator_that_has_moved_replaces_it() -> None:
    group = member()
    group.coordinator = 2
    group.respond_to_beat(ErrorCode.not_coordinator)
    group.respond_to_beat()
    node = background_heartbeat_of(group).node
    assert node is not None
    assert node.node_id == 2


def test_it_is_not_published_again_by_each_heartbeat() -> None:
    group = member()
    group.pulse = ErrorCode.none
    before = background_heartbeat_of(group)
    group.advance(30.0)
    assert background_heartbeat_of(group) is before


def test_only_what_leaves_the_membership_alone_may_be_repeated_after() -> None:
    heartbeat = background_heartbeat_of(member())
    after = {error: heartbeat.next_message(HeartbeatResponse(error=error)) for error in ErrorCode}
    again = {error for error, message in after.items() if message == heartbeat.message}
    assert set(after.values()) == {heartbeat.message, None}
    assert again == {ErrorCode.none, ErrorCode.rebalance_in_progress}


ENDS: dict[str, Callable[[ScriptedGroup], object]] = {
    "closed": ScriptedGroup.close,
    "unsubscribed": ScriptedGroup.unsubscribe,
    "put out": lambda group: group.respond_to_beat(ErrorCode.unknown_member_id),
    "fenced": lambda group: group.respond_to_beat(ErrorCode.fenced_instance_id),
}


@pytest.mark.parametrize("end", ENDS)
def test_after_the_membership_nothing_may_be_sent(end: str) -> None:
    group = member()
    ENDS[end](group)
    assert sends_none(group)


def test_a_confirmation_counts_from_when_it_was_asked_for() -> None:
    group = member()
    group.now += 40.0
    thread_received(group, ago=0.5)
    assert group.core.health(group.now).heartbeat_age == pytest.approx(0.5)
    assert group.assigned == orders(0, 1)


def test_a_rebalance_announced_by_a_background_heartbeat_is_joined() -> None:
    group = member()
    thread_received(group, ErrorCode.rebalance_in_progress)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert owned(group.joining()) == orders(0, 1)
    thread_received(group, ErrorCode.rebalance_in_progress)
    assert group.phase() is ClassicState.AWAIT_JOIN


def test_an_error_for_the_current_membership_ends_it() -> None:
    group = member()
    group.now += 0.1
    thread_received(group, ErrorCode.unknown_member_id)
    assert group.step().lost == orders(0, 1)


def test_an_error_for_a_former_membership_is_ignored() -> None:
    group = member()
    old = background_heartbeat_of(group)
    group.rebalance()
    group.rejoin(0, 1)
    for error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
        thread_received(group, error, heartbeat=old)
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == orders(0, 1)


def test_an_error_during_a_join_waits_for_the_join_response() -> None:
    group = member()
    group.rebalance()
    thread_received(group, ErrorCode.illegal_generation)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.assigned == orders(0, 1)
    group.rejoin(0, 1)
    assert group.phase() is ClassicState.STABLE


def test_a_response_that_comes_after_leaving_is_dropped() -> None:
    group = member()
    old = background_heartbeat_of(group)
    group.close()
    assert group.count(LeaveGroupRequest) == 1
    thread_received(group, ErrorCode.unknown_member_id, heartbeat=old)
    group.respond_to_leave()
    assert not group.heard(NotifyKind.LOST)


@pytest.mark.parametrize(
    "reply",
    [Failed(0, FailureKind.DISCONNECTED, "gone"), ErrorCode.not_coordinator],
    ids=["no response", "moved"],
)
def test_a_failed_background_heartbeat_ends_no_membership_and_the_loop_sends_its_own(
    reply: ErrorCode | Failed,
) -> None:
    group = member()
    before = group.count(HeartbeatRequest)
    thread_received(group, reply)
    group.advance(0.01)
    assert group.count(HeartbeatRequest) == before + 1
    assert group.phase() is ClassicState.STABLE
    assert group.named("heartbeat from the thread failed; sending one from the event loop")
