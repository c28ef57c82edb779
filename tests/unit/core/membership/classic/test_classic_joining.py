"""A classic member on its way into a group: JoinGroup, SyncGroup, and the leader's part."""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    foreign,
    orders,
    owned,
    subscription_of,
    wait_until,
)

from asyncrevoke.client.core.io.effects import Channel, FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import (
    AuthenticationError,
    FatalError,
    FencedInstanceError,
    GroupAuthorizationError,
    InconsistentGroupError,
    UnsupportedVersionError,
)
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])

# --- AWAIT_ID -----------------------------------------------------------------------------------


@BOTH
def test_a_new_member_asks_for_an_id_and_joins_with_it_and_the_same_metadata(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    first = group.joining()
    assert group.phase() is ClassicState.AWAIT_ID
    assert first.member_id == ""
    group.give_id()
    second = group.joining()
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert second.member_id == MEMBER
    assert second.protocols == first.protocols
    assert subscription_of(second).topics == ("orders",)


def test_a_static_member_gets_its_id_and_its_generation_in_one_response() -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    assert group.joining().group_instance_id == "one"
    group.respond_to_join()
    assert group.phase() is ClassicState.AWAIT_SYNC
    assert group.respond_to_sync(tp(0)).group_instance_id == "one"
    assert group.assigned == orders(0)


def test_a_static_member_that_returns_while_partitions_are_withheld_joins_once_more() -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    group.respond_to_join()
    group.respond_to_sync(tp(0), withheld=True)
    assert group.assigned == orders(0)
    assert owned(group.joining()) == orders(0)
    group.respond_to_join()
    group.respond_to_sync(tp(0), withheld=True)
    assert group.phase() is ClassicState.STABLE
    assert not group.sends(JoinGroupRequest)


@pytest.mark.parametrize(("group_instance_id", "withheld"), [("one", False), (None, True)])
def test_a_member_does_not_join_again_if_it_is_dynamic_or_nothing_is_withheld(
    group_instance_id: str | None, withheld: bool
) -> None:
    group = ScriptedGroup(group_instance_id=group_instance_id)
    group.start()
    if group_instance_id is None:
        group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), led_by_us=True, withheld=withheld)
    assert group.phase() is ClassicState.STABLE
    assert not group.sends(JoinGroupRequest)


def test_joining_asks_for_the_timeouts_of_the_options() -> None:
    group = ScriptedGroup(session_timeout=12.0, rebalance_timeout=34.0)
    group.start()
    request = group.joining()
    assert (request.session_timeout, request.rebalance_timeout) == (12.0, 34.0)


@pytest.mark.parametrize(("rebalance_timeout", "parked"), [(50.0, 37.5), (300.0, 45.0)])
def test_a_pending_join_is_sent_again_before_the_group_may_continue_without_us(
    rebalance_timeout: float, parked: float
) -> None:
    group = ScriptedGroup(rebalance_timeout=rebalance_timeout)
    group.become_member(0)
    group.rebalance()
    assert group.only(JoinGroupRequest)[0].timeout == parked


def test_a_member_without_topics_does_not_join() -> None:
    group = ScriptedGroup(pattern="none-.*")
    group.start()
    assert group.phase() is ClassicState.UNJOINED
    assert group.count(JoinGroupRequest) == 0


def test_a_pattern_joins_when_a_topic_matches() -> None:
    group = ScriptedGroup(pattern="bills-.*", metadata_max_age=10.0)
    group.start()
    group.partitions["bills-1"] = 2
    group.topic_ids["bills-1"] = b"bills-1".ljust(16)
    group.advance(11.0)
    assert subscription_of(group.joining()).topics == ("bills-1",)


# --- AWAIT_JOIN ---------------------------------------------------------------------------------


@BOTH
def test_a_follower_syncs_with_nothing_to_assign(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join()
    _, request = group.only(SyncGroupRequest)
    assert group.phase() is ClassicState.AWAIT_SYNC
    assert request.assignments == ()
    assert (request.generation, request.member_id) == (1, MEMBER)
    assert request.protocol_name == ("range" if eager else "cooperative-sticky")


@BOTH
def test_a_leader_assigns_to_everyone(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=(foreign("m-2"),))
    plan = group.planned()
    assert set(plan) == {MEMBER, "m-2"}
    assert {len(partitions) for partitions in plan.values()} == {2}
    assert plan[MEMBER] | plan["m-2"] == orders(0, 1, 2, 3)


def test_a_leader_with_skip_assignment_assigns_nothing_and_watches_its_topics() -> None:
    group = ScriptedGroup(group_instance_id="one", metadata_max_age=10.0)
    group.start()
    group.respond_to_join(leads=True, skip_assignment=True)
    assert group.respond_to_sync(tp(0)).assignments == ()
    group.pulse = ErrorCode.none
    group.partitions["orders"] = 5
    group.advance(12.0)
    assert group.count(JoinGroupRequest) == 2


@BOTH
def test_joining_and_syncing_go_over_a_channel_of_their_own(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    channels = {
        type(send.message): send.channel
        for send in group.sent
        if isinstance(send.message, (JoinGroupRequest, SyncGroupRequest))
    }
    assert channels == {JoinGroupRequest: Channel.JOIN, SyncGroupRequest: Channel.JOIN}


@BOTH
@pytest.mark.parametrize("held", [True, False], ids=["with partitions", "without"])
def test_a_join_of_an_unknown_member_loses_everything_and_begins_again(
    eager: bool, held: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(*([0, 1] if held else []))
    group.rebalance()
    group.step()
    group.step()
    kept = group.assigned
    group.respond_to_join(ErrorCode.unknown_member_id)
    assert group.phase() is ClassicState.AWAIT_ID
    assert group.joining().member_id == ""
    assert owned(group.joining()) == frozenset()
    assert group.assigned == frozenset()
    assert group.step().lost == kept


REJECTIONS = {
    ErrorCode.inconsistent_group_protocol: (InconsistentGroupError, "shares no assignor"),
    ErrorCode.invalid_session_timeout: (InconsistentGroupError, "group.min.session.timeout.ms"),
    ErrorCode.group_max_size_reached: (InconsistentGroupError, "group.max.size"),
    ErrorCode.group_authorization_failed: (GroupAuthorizationError, "grant READ"),
    ErrorCode.fenced_instance_id: (FencedInstanceError, "give each member its own"),
    ErrorCode.invalid_group_id: (InconsistentGroupError, "invalid_group_id"),
}


@BOTH
@pytest.mark.parametrize("error", REJECTIONS, ids=lambda error: error.name)
def test_what_a_group_rejects_for_good_loses_everything_and_is_raised_from_then_on(
    eager: bool, error: ErrorCode
) -> None:
    kind, fix = REJECTIONS[error]
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    kept = group.assigned
    group.respond_to_join(error)
    assert group.phase() is ClassicState.FATAL
    if kept:
        assert group.step().lost == kept  # lost comes first
    for _ in range(2):
        with pytest.raises(kind, match=fix):
            group.poll()
    group.advance(600.0)
    assert group.count(HeartbeatRequest) == 1
    assert group.sends(JoinGroupRequest) == []


def test_a_protocol_that_we_never_offered_is_rejected() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join(protocol="sticky")
    assert group.phase() is ClassicState.FATAL
    with pytest.raises(InconsistentGroupError):
        group.poll()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.AUTHENTICATION, AuthenticationError),
        (FailureKind.UNSUPPORTED, UnsupportedVersionError),
    ],
)
@pytest.mark.parametrize("request_", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_a_broker_that_cannot_be_talked_to_at_all_is_fatal(
    kind: FailureKind, error: type[FatalError], request_: type
) -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    if request_ is not JoinGroupRequest:
        group.respond_to_join()
    send = group.beat() if request_ is HeartbeatRequest else group.only(request_)[0]
    group.fail(send, kind)
    assert group.phase() is ClassicState.FATAL
    with pytest.raises(error):
        group.poll()


@BOTH
@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.DISCONNECTED,
        FailureKind.TIMEOUT,
        FailureKind.UNREACHABLE,
        FailureKind.MALFORMED,
    ],
)
def test_a_join_without_a_response_is_sent_again_unchanged(eager: bool, kind: FailureKind) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    first = group.joining()
    for _ in range(3):
        group.fail(group.only(JoinGroupRequest)[0], kind)
        group.advance(1.0)
        assert group.joining() == first
    assert group.phase() is ClassicState.AWAIT_JOIN


def test_the_first_retry_of_a_join_is_immediate_because_quiet_connections_are_closed() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.pulse = ErrorCode.none
    group.advance(10.0)
    group.rebalance()
    group.fail(group.only(JoinGroupRequest)[0])
    assert group.sends(JoinGroupRequest)
    assert group.count(FindCoordinatorRequest) == 1
    group.fail(group.only(JoinGroupRequest)[0])
    assert not group.sends(JoinGroupRequest)
    assert group.count(FindCoordinatorRequest) == 2


def test_a_join_is_sent_again_unchanged_although_partitions_were_released_meanwhile() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.rebalance()
    group.rejoin(0)  # 1 has to go
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    first = group.joining()
    assert owned(first) == orders(0, 1)
    group.step()
    assert group.assigned == orders(0)
    group.fail(group.only(JoinGroupRequest)[0])
    assert group.joining() == first


MOVED = [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available]


@BOTH
@pytest.mark.parametrize(
    "error", [*MOVED, ErrorCode.coordinator_load_in_progress], ids=lambda error: error.name
)
def test_a_join_follows_the_coordinator_unchanged(eager: bool, error: ErrorCode) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    first = group.joining()
    kept = group.assigned
    group.coordinator = 2
    group.respond_to_join(error)
    group.advance(0.2)
    send, second = group.only(JoinGroupRequest)
    assert second == first
    assert send.node.node_id == (2 if error in MOVED else 1)
    assert group.assigned == kept


def test_a_coordinator_that_loads_its_groups_is_asked_ever_less_often() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    waits: list[float] = []
    for _ in range(8):
        group.respond_to_join(ErrorCode.coordinator_load_in_progress)
        waits.append(wait_until(group, lambda: group.sends(JoinGroupRequest), 2.0))
    assert waits == sorted(waits)
    assert waits[0] < 0.1
    assert waits[-1] == pytest.approx(1.0, abs=0.05)
