"""A classic member between its JoinGroup and its assignment, and the leader's part in it."""

from __future__ import annotations

import struct

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

from asyncrevoke.client.config.topics import MAX_ASSIGNED
from asyncrevoke.client.core.assignors.cooperative_sticky import CooperativeStickyAssignor
from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import (
    FatalError,
    FencedInstanceError,
    GroupAuthorizationError,
    InconsistentGroupError,
)
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupMember,
    JoinGroupRequest,
    MetadataRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import encode_assignment

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])

# --- AWAIT_SYNC ---------------------------------------------------------------------------------


@BOTH
def test_what_the_sync_assigns_is_read_from_the_committed_offset(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.committed = {tp(0): 3}
    group.produce(0, 5)
    group.become_member(0)
    assert [record.offset for record in group.step().records] == [3, 4]
    assert group.heard(NotifyKind.ASSIGNED) == [orders(0)]


@BOTH
def test_a_member_that_the_leader_left_out_has_nothing_and_stays(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join()
    group.reply(
        group.only(SyncGroupRequest)[0],
        SyncGroupResponse(error=ErrorCode.none, assignment=b""),
    )
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == frozenset()


@BOTH
@pytest.mark.parametrize(
    ("blob", "problem"),
    [
        (b"\x00\x01garbage", "ConsumerProtocolAssignment"),
        (struct.pack(">hih6si", 1, 1, 6, b"orders", MAX_ASSIGNED + 1) + bytes(400_008), "100000"),
        (bytes(4 * 2**20 + 1), "4194304"),
    ],
)
def test_an_assignment_that_cannot_be_read_assigns_nothing_and_ends_no_member(
    eager: bool, blob: bytes, problem: str
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    group.respond_to_join()
    group.reply(
        group.only(SyncGroupRequest)[0],
        SyncGroupResponse(error=ErrorCode.none, assignment=blob),
    )
    (line,) = group.named("the leader's assignment cannot be decoded; no partitions are assigned")
    assert problem in str(line.fields["problem"])
    group.step()  # raised FatalError
    group.step()
    if eager:
        group.rebalance()
        group.step()
    group.rejoin(0)
    assert group.assigned == orders(0)


def test_a_leader_cannot_assign_tens_of_thousands_of_partitions_that_do_not_exist() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join()
    group.reply(
        group.only(SyncGroupRequest)[0],
        SyncGroupResponse(
            error=ErrorCode.none, assignment=encode_assignment(map(tp, range(20_000)))
        ),
    )
    assert group.assigned == orders(0, 1, 2, 3)
    (line,) = group.named("part of the leader's assignment is not valid and was ignored")
    assert line.fields["problem"] == "19996 partitions that do not exist, such as orders-4"


def test_partitions_that_the_metadata_do_not_have_yet_are_assigned() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(*map(tp, range(100)))
    assert group.assigned == orders(*range(100))


@BOTH
@pytest.mark.parametrize(
    ("error", "keeps_id"),
    [(ErrorCode.unknown_member_id, False), (ErrorCode.illegal_generation, True)],
)
def test_a_sync_that_is_rejected_loses_everything_and_joins_again(
    eager: bool, error: ErrorCode, keeps_id: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    kept = group.assigned
    group.respond_to_join()
    group.respond_to_sync(error=error)
    request = group.joining()
    assert request.member_id == (MEMBER if keeps_id else "")
    assert group.phase() is (ClassicState.AWAIT_JOIN if keeps_id else ClassicState.AWAIT_ID)
    assert (owned(request), subscription_of(request).generation) == (frozenset(), -1)
    assert group.step().lost == kept


@BOTH
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.fenced_instance_id, FencedInstanceError),
        (ErrorCode.inconsistent_group_protocol, InconsistentGroupError),
        (ErrorCode.group_authorization_failed, GroupAuthorizationError),
    ],
)
def test_a_sync_that_is_rejected_for_good_is_fatal(
    eager: bool, error: ErrorCode, kind: type[FatalError]
) -> None:
    group = ScriptedGroup(eager=eager, group_instance_id="one")
    group.start()
    group.respond_to_join()
    group.respond_to_sync(error=error)
    assert group.phase() is ClassicState.FATAL
    with pytest.raises(kind):
        group.poll()


@BOTH
def test_a_sync_into_another_rebalance_joins_again_with_what_is_held(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    group.respond_to_join()
    group.respond_to_sync(error=ErrorCode.rebalance_in_progress)
    assert group.phase() is ClassicState.AWAIT_JOIN
    request = group.joining()
    assert request.member_id == MEMBER
    assert owned(request) == (frozenset() if eager else orders(0, 1))
    assert group.step().lost == frozenset()


def _no_response(group: ScriptedGroup) -> None:
    group.fail(group.only(SyncGroupRequest)[0])


def _moved(group: ScriptedGroup) -> None:
    group.respond_to_sync(error=ErrorCode.not_coordinator)


def _loading(group: ScriptedGroup) -> None:
    group.respond_to_sync(error=ErrorCode.coordinator_load_in_progress)


@BOTH
@pytest.mark.parametrize("respond", [_no_response, _moved, _loading])
def test_a_sync_without_a_response_asks_for_the_running_generation_by_the_same_join(
    eager: bool, respond: object
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    first = group.respond_to_join()
    assert callable(respond)
    respond(group)
    group.advance(1.0)
    # Other metadata would start another rebalance, for the whole group.
    again = group.joining()
    assert again.protocols == first.protocols
    assert again.member_id == MEMBER
    assert group.phase() is ClassicState.AWAIT_JOIN
    group.respond_to_join(same_generation=True)
    group.respond_to_sync(tp(0), tp(1))
    assert group.assigned == orders(0, 1)


def test_a_static_member_whose_first_sync_had_no_response_joins_again_with_its_new_id() -> None:
    group = ScriptedGroup(group_instance_id="one")
    group.start()
    first = group.respond_to_join()
    group.fail(group.only(SyncGroupRequest)[0])
    group.advance(1.0)
    again = group.joining()
    assert (again.member_id, again.protocols) == (MEMBER, first.protocols)


def test_a_sync_that_a_broker_cannot_process_is_asked_for_ever_less_often() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    waits: list[float] = []
    for _ in range(8):
        group.respond_to_join(same_generation=True)
        group.respond_to_sync(error=ErrorCode.unknown_server_error)
        waits.append(wait_until(group, lambda: group.sends(JoinGroupRequest), 2.0))
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(1.0, abs=0.05)


def test_no_commit_leaves_between_join_and_sync() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.rebalance()
    group.respond_to_join()
    group.receive(0)
    group.step()
    group.advance(5.0)
    assert group.phase() is ClassicState.AWAIT_SYNC
    with pytest.raises(AssertionError):
        group.committing()
    group.respond_to_sync(tp(0))
    assert group.committing() == {tp(0): 1}


def test_the_response_to_an_obsolete_sync_is_dropped() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join()
    send, _ = group.only(SyncGroupRequest)
    group.core.membership.fail(group.now, FatalError("the disk is full"))
    group.reply(send, SyncGroupResponse(error=ErrorCode.none))
    assert group.phase() is ClassicState.FATAL


@pytest.mark.parametrize("leads", [True, False])
def test_who_is_a_member_and_waits_for_its_assignment_asks_again(leads: bool) -> None:
    # A follower may wait for a slow leader, and a leader until its assignment is stored.
    group = ScriptedGroup(heartbeat_interval=0.5)
    group.start()
    group.give_id()
    group.respond_to_join(leads=leads)
    group.pulse = ErrorCode.none
    waits = group.only(SyncGroupRequest)
    group.advance(20.0)
    assert group.only(SyncGroupRequest) == waits
    group.advance(1.0)
    assert not group.sends(SyncGroupRequest)


# --- the leader ---------------------------------------------------------------------------------


def two_topics(*, eager: bool = False) -> ScriptedGroup:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=eager)
    group.start()
    group.give_id()
    return group


def test_a_leader_asks_for_the_topics_of_others_before_it_assigns() -> None:
    group = two_topics()
    group.silent.add(MetadataRequest)
    group.respond_to_join(leads=True, others=(foreign("m-2", "bills"),))
    send, request = group.only(MetadataRequest)
    assert request.topics == ("bills", "orders")
    assert not group.sends(SyncGroupRequest)
    group.reply(send, group._metadata(request.topics))
    assert group.planned() == {MEMBER: orders(0, 1), "m-2": {tp(0, "bills"), tp(1, "bills")}}


def test_a_leader_waits_for_the_right_metadata_when_other_metadata_is_under_way() -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, metadata_max_age=10.0)
    group.start()
    group.give_id()
    group.silent.add(MetadataRequest)
    group.advance(11.0)
    old, request = group.only(MetadataRequest)
    assert request.topics == ("orders",)
    group.respond_to_join(leads=True, others=(foreign("m-2", "bills"),))
    group.reply(old, group._metadata(("orders",)))
    assert not group.sends(SyncGroupRequest)
    new, request = group.only(MetadataRequest)
    group.reply(new, group._metadata(request.topics))
    assert group.planned()["m-2"] == {tp(0, "bills"), tp(1, "bills")}


def test_a_topic_that_does_not_exist_does_not_keep_a_leader_waiting() -> None:
    group = two_topics()
    group.respond_to_join(leads=True, others=(foreign("m-2", "no-such-topic"),))
    assert group.planned() == {MEMBER: orders(0, 1), "m-2": frozenset()}


@BOTH
def test_a_leader_joins_again_when_a_topic_of_others_appears(eager: bool) -> None:
    group = two_topics(eager=eager)
    group.respond_to_join(leads=True, others=(foreign("m-2", "late"),))
    group.respond_to_sync(*orders(0, 1))
    group.pulse = ErrorCode.none
    group.partitions["late"] = 1
    group.topic_ids["late"] = b"late".ljust(16)
    group.advance(5.0)
    group.step()
    group.step()
    assert group.phase() is ClassicState.AWAIT_JOIN


@BOTH
@pytest.mark.parametrize("leads", [True, False])
def test_only_a_leader_joins_again_when_partitions_are_added(eager: bool, leads: bool) -> None:
    group = ScriptedGroup(eager=eager, metadata_max_age=10.0)
    group.start()
    group.give_id()
    group.respond_to_join(leads=leads)
    group.respond_to_sync(tp(0))
    group.pulse = ErrorCode.none
    group.partitions["orders"] = 6
    group.advance(12.0)
    assert (group.phase() is not ClassicState.STABLE) == leads


def test_partitions_added_while_the_leader_syncs_are_assigned_by_the_next_join() -> None:
    group = ScriptedGroup(metadata_max_age=1.0)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.pulse = ErrorCode.none
    group.partitions["orders"] = 6
    group.advance(1.2)
    assert group.phase() is ClassicState.AWAIT_SYNC
    group.respond_to_sync(*orders(0, 1, 2, 3))
    assert owned(group.joining()) == orders(0, 1, 2, 3)


def test_partitions_added_while_the_leader_joins_need_no_further_join() -> None:
    group = ScriptedGroup(metadata_max_age=3.0)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.respond_to_sync(tp(0))
    group.pulse = ErrorCode.none
    for partitions in (6, 8):
        group.partitions["orders"] = partitions
        group.advance(12.0)
        assert group.phase() is ClassicState.AWAIT_JOIN
    group.respond_to_join(leads=True)
    assert len(group.planned()[MEMBER]) == 8
    group.respond_to_sync(*orders(*range(8)))
    assert group.phase() is ClassicState.STABLE


def test_a_member_that_no_longer_leads_no_longer_watches_the_topics() -> None:
    group = ScriptedGroup(metadata_max_age=10.0)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.respond_to_sync(tp(0))
    group.rebalance()
    group.rejoin(0)
    group.pulse = ErrorCode.none
    group.partitions["orders"] = 6
    group.advance(12.0)
    assert group.phase() is ClassicState.STABLE


@BOTH
def test_a_subscription_that_cannot_be_read_is_logged_and_gets_nothing(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    broken = JoinGroupMember(member_id="m-2", group_instance_id=None, metadata=b"\x00\x03\xff")
    group.respond_to_join(leads=True, others=(broken,))
    assert group.planned() == {MEMBER: orders(0, 1, 2, 3), "m-2": frozenset()}
    (line,) = group.named("a member's subscription cannot be decoded; it is assigned no partitions")
    assert (line.level, line.fields["member"]) == ("error", "m-2")


def test_a_leader_assigns_no_partition_that_another_member_still_owns() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=(foreign("m-2", owned=orders(0, 1, 2, 3)),))
    plan = group.planned()
    assert plan[MEMBER] == frozenset()
    assert len(plan["m-2"]) == 2  # the other two come to us when it has released them


def test_an_assignor_that_fails_is_fatal_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("nobody to share with")

    group = ScriptedGroup()
    group.start()
    group.give_id()
    monkeypatch.setattr(CooperativeStickyAssignor, "assign", fail)
    group.respond_to_join(leads=True)
    with pytest.raises(FatalError, match=r"'cooperative-sticky' failed: ZeroDivisionError"):
        group.poll()


def test_an_assignor_that_does_not_withhold_is_repaired_and_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def greedy(*_arguments: object) -> dict[str, tuple[object, ...]]:
        return {MEMBER: (tp(0), tp(1)), "m-2": (tp(2), tp(3))}

    group = ScriptedGroup()
    group.start()
    group.give_id()
    monkeypatch.setattr(CooperativeStickyAssignor, "assign", greedy)
    group.respond_to_join(leads=True, others=(foreign("m-2", owned=orders(1, 2)),))
    assert group.planned() == {MEMBER: orders(0), "m-2": orders(2, 3)}
    (line,) = group.named("the assignor assigned partitions that other members still own")
    assert line.level == "error"
