"""What the coordinator says of a membership counts only for the membership that we have now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    orders,
    owned,
    subscription_of,
    wait_until,
    working,
)

from asyncrevoke.client.core.io.effects import FailureKind, NotifyKind, Send
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import FencedInstanceError, GroupAuthorizationError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])
FROM_EITHER = pytest.mark.parametrize("kind", [HeartbeatRequest, OffsetCommitRequest])
EVICTIONS = [ErrorCode.unknown_member_id, ErrorCode.illegal_generation]
MEMBERSHIP_ERRORS = [*EVICTIONS, ErrorCode.fenced_instance_id]


def outstanding(
    eager: bool, **options: Unpack[ConsumerOptions]
) -> tuple[ScriptedGroup, dict[type, Send]]:
    """A member of generation 1 with a heartbeat and a commit under way."""
    options.setdefault("commit_mode", "ack")
    group = ScriptedGroup(partitions={"orders": 4, "bills": 1}, eager=eager, **options)
    group.become_member(0, 1)
    first, second = group.receive(0, 1)
    done = first if first.partition == 0 else second
    group.complete(done)
    group.advance(1.0)
    assert group.committing() == {tp(0): 1}
    return group, {
        HeartbeatRequest: group.beat(),
        OffsetCommitRequest: group.only(OffsetCommitRequest)[0],
    }


def respond(group: ScriptedGroup, send: Send, error: ErrorCode) -> None:
    if isinstance(send.message, HeartbeatRequest):
        group.respond_to_beat(error, send=send)
    else:
        group.respond_to_commit(error, send=send)


def drain(group: ScriptedGroup, eager: bool) -> None:
    """Into DRAIN, with the same generation."""
    if eager:
        group.subscribe("orders", "bills")
    else:
        group.subscribe("bills")
    group.step()
    assert group.phase() is ClassicState.REVOKING


# --- errors -------------------------------------------------------------------------------------


@BOTH
@FROM_EITHER
@pytest.mark.parametrize("phase", [ClassicState.STABLE, ClassicState.REVOKING])
@pytest.mark.parametrize("error", EVICTIONS)
def test_an_eviction_loses_everything_and_joins_again(
    eager: bool, kind: type, phase: ClassicState, error: ErrorCode
) -> None:
    group, sends = outstanding(eager)
    if phase is ClassicState.REVOKING:
        drain(group, eager)
    respond(group, sends[kind], error)
    request = group.joining()
    # Only an unknown member loses its id; a generation that has passed ends with that generation.
    assert request.member_id == ("" if error is ErrorCode.unknown_member_id else MEMBER)
    assert (owned(request), subscription_of(request).generation) == (frozenset(), -1)
    assert group.assigned == frozenset()
    result = group.step()
    assert (result.lost, result.to_be_revoked) == (orders(0, 1), frozenset())
    assert group.heard(NotifyKind.LOST) == [orders(0, 1)]
    assert group.heard(NotifyKind.REVOKED) == []
    assert group.step().lost == frozenset()


@BOTH
@FROM_EITHER
@pytest.mark.parametrize("phase", [ClassicState.STABLE, ClassicState.REVOKING])
def test_a_member_that_another_has_replaced_is_fenced(
    eager: bool, kind: type, phase: ClassicState
) -> None:
    group, sends = outstanding(eager, group_instance_id="one")
    if phase is ClassicState.REVOKING:
        drain(group, eager)
    respond(group, sends[kind], ErrorCode.fenced_instance_id)
    assert group.phase() is ClassicState.FATAL
    assert group.step().lost == orders(0, 1)
    with pytest.raises(FencedInstanceError, match="group_instance_id='one'"):
        group.poll()


@BOTH
def test_after_an_eviction_nothing_of_the_lost_partitions_is_ever_committed(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, commit_mode="ack")
    group.become_member(0)
    (record,) = group.receive(0)
    group.respond_to_beat(ErrorCode.unknown_member_id)
    assert not group.complete(record)
    group.give_id()
    group.rejoin(0)
    group.pulse = ErrorCode.none
    group.advance(10.0)
    (again,) = group.step().records
    assert again.offset == record.offset
    assert not group.complete(record)
    group.advance(10.0)
    assert group.count(OffsetCommitRequest) == 0
    assert group.complete(again)
    group.advance(1.0)
    assert group.committing() == {tp(0): 1}


@BOTH
@FROM_EITHER
def test_a_group_that_we_may_not_use_any_more_is_fatal(eager: bool, kind: type) -> None:
    group, sends = outstanding(eager)
    respond(group, sends[kind], ErrorCode.group_authorization_failed)
    assert group.phase() is ClassicState.FATAL
    group.step()
    with pytest.raises(GroupAuthorizationError):
        group.poll()


# --- stale errors ------------------------------------------------------------------------------


def join(group: ScriptedGroup, sends: dict[type, Send], eager: bool) -> None:
    """Into AWAIT_JOIN, with the requests of before still under way."""
    group.subscribe("orders", "bills")
    if eager:
        # Only at the deadline does an eager member join while a commit is under way.
        group.step()
        group.advance(10.0)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert all(send.request_id in group.open for send in sends.values())


PHASES = [
    ClassicState.AWAIT_JOIN,
    ClassicState.AWAIT_SYNC,
    ClassicState.STABLE,
    ClassicState.REVOKING,
]


@BOTH
@FROM_EITHER
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("error", MEMBERSHIP_ERRORS)
def test_an_error_for_a_generation_that_a_join_has_ended_is_stale(
    eager: bool, kind: type, phase: ClassicState, error: ErrorCode
) -> None:
    group, sends = outstanding(eager, revoke_timeout=8.0)
    join(group, sends, eager)
    if phase is not ClassicState.AWAIT_JOIN:
        group.respond_to_join()
    if phase is ClassicState.STABLE:
        group.respond_to_sync(tp(0), tp(1))
    if phase is ClassicState.REVOKING:
        if eager:
            group.respond_to_sync(tp(0), tp(1))
            wait_until(group, lambda: group.step().records, 1.0)
            group.subscribe("orders")
        else:
            group.respond_to_sync(tp(0))
    assert group.phase() is phase
    group.step()
    kept = group.assigned
    joins = group.count(JoinGroupRequest)
    respond(group, sends[kind], error)
    assert group.phase() is phase
    assert group.assigned == kept
    assert group.step().lost == frozenset()
    assert group.count(JoinGroupRequest) == joins


@FROM_EITHER
@pytest.mark.parametrize("phase", [ClassicState.STABLE, ClassicState.REVOKING])
def test_a_rebalance_that_is_over_is_not_joined_again(kind: type, phase: ClassicState) -> None:
    group, sends = outstanding(eager=False)
    join(group, sends, eager=False)
    group.rejoin(*([0, 1] if phase is ClassicState.STABLE else [0]))
    respond(group, sends[kind], ErrorCode.rebalance_in_progress)
    assert group.phase() is phase


@pytest.mark.parametrize("error", EVICTIONS)
def test_a_commit_rejected_for_an_old_generation_is_sent_again_with_the_new_one(
    error: ErrorCode,
) -> None:
    group, sends = outstanding(eager=False)
    join(group, sends, eager=False)
    group.respond_to_commit(error)
    group.rejoin(0, 1)
    group.advance(1.0)
    _, request = group.only(OffsetCommitRequest)
    assert request.generation == 2
    assert group.respond_to_commit() == {tp(0): 1}
    group.advance(5.0)
    assert not group.sends(OffsetCommitRequest)


@BOTH
@pytest.mark.parametrize("error", MEMBERSHIP_ERRORS)
def test_a_heartbeat_error_is_ignored_while_a_sync_is_in_flight(
    eager: bool, error: ErrorCode
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_beat(error)
    assert group.phase() is ClassicState.AWAIT_SYNC
    assert group.sends(SyncGroupRequest)


@BOTH
def test_a_rebalance_that_a_heartbeat_reports_while_syncing_is_left_to_the_sync(
    eager: bool,
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join()
    group.rebalance()
    assert group.phase() is ClassicState.AWAIT_SYNC
    assert group.count(JoinGroupRequest) == 2


@BOTH
@FROM_EITHER
@pytest.mark.parametrize("error", [*MEMBERSHIP_ERRORS, ErrorCode.rebalance_in_progress])
def test_errors_for_a_membership_that_was_left_are_ignored(
    eager: bool, kind: type, error: ErrorCode
) -> None:
    group, sends = outstanding(eager, max_poll_interval=10.0)
    group.advance(11.0)
    assert group.phase() is ClassicState.LEAVING
    respond(group, sends[kind], error)
    assert group.phase() is ClassicState.LEAVING
    group.respond_to_leave()
    assert group.phase() is ClassicState.UNJOINED
    assert group.step().lost == orders(0, 1)


# --- no error at all ---------------------------------------------------------------------------


@BOTH
def test_a_silent_coordinator_takes_nothing_away(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, session_timeout=6.0, on_unconfirmed_membership="continue")
    group.become_member(0)
    group.silent.add(FindCoordinatorRequest)
    for _ in range(2):
        group.fail(group.beat(), FailureKind.TIMEOUT)
        group.advance(60.0)
        if group.sends(FindCoordinatorRequest):
            break
    assert group.phase() is ClassicState.STABLE
    assert group.receive(0)
    assert group.step().lost == frozenset()


@BOTH
def test_when_the_coordinator_is_found_again_a_heartbeat_is_sent_at_once(
    eager: bool,
) -> None:
    group = ScriptedGroup(eager=eager, session_timeout=6.0)
    group.become_member(0)
    group.advance(5.0)
    group.silent.add(FindCoordinatorRequest)
    group.fail(group.beat(), FailureKind.TIMEOUT)
    group.advance(30.0)
    group.silent.clear()
    group._respond_automatically(group.only(FindCoordinatorRequest)[0])
    group.run_until_idle()
    group.advance(0.0)
    assert len(group.sends(HeartbeatRequest)) == 1
    group.respond_to_beat(ErrorCode.unknown_member_id)
    assert group.assigned == frozenset()


# --- heartbeats ---------------------------------------------------------------------------------


def interval(group: ScriptedGroup) -> float:
    """Seconds between the next two heartbeats."""
    group.respond_to_beat()
    begun = group.now
    group.beat()
    return round(group.now - begun, 6)


def test_heartbeats_are_more_frequent_for_a_while_after_a_sync() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    assert interval(group) == 0.3
    group.respond_to_beat()
    group.pulse = ErrorCode.none
    group.advance(5.0)
    group.pulse = None
    assert interval(group) == 1.0


def test_heartbeats_stay_frequent_while_nothing_is_assigned() -> None:
    group = ScriptedGroup()
    group.become_member()
    group.pulse = ErrorCode.none
    group.advance(30.0)
    group.pulse = None
    assert interval(group) == 0.3


def test_heartbeats_stay_frequent_while_a_follow_up_is_owed() -> None:
    group, _ = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    group.step()
    group.pulse = ErrorCode.none
    group.advance(30.0)
    group.pulse = None
    assert interval(group) == 0.3


def test_heartbeats_are_never_more_than_one_at_a_time_and_never_rarer_than_asked_for() -> None:
    group = ScriptedGroup(heartbeat_interval=0.1, session_timeout=6.0)
    group.become_member(0)
    assert interval(group) == 0.1
    group.advance(10.0)
    assert len(group.sends(HeartbeatRequest)) == 1


@BOTH
def test_a_heartbeat_without_a_response_looks_for_the_coordinator_and_beats_again(
    eager: bool,
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.coordinator = 2
    group.fail(group.beat(), FailureKind.TIMEOUT)
    assert group.beat().node.node_id == 2
    assert group.phase() is ClassicState.STABLE


@BOTH
@pytest.mark.parametrize("error", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
def test_heartbeats_follow_the_coordinator(eager: bool, error: ErrorCode) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.coordinator = 2
    group.respond_to_beat(error)
    send = group.beat()
    assert send.node.node_id == 2
    assert group.phase() is ClassicState.STABLE


def test_a_session_timeout_without_a_response_does_not_end_the_membership() -> None:
    group = ScriptedGroup(session_timeout=6.0, on_unconfirmed_membership="continue")
    group.become_member(0)
    for _ in range(5):
        group.fail(group.beat(), FailureKind.TIMEOUT)
        group.advance(2.5)
    assert group.named("membership unconfirmed: no heartbeat confirmed within the session timeout")
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == orders(0)
    assert group.receive(0), "what is delivered goes on"
    group.respond_to_beat()
    assert group.named("membership is confirmed again")
    assert group.step().lost == frozenset()
