"""What has drained is handed over without waiting for the slowest partition of its round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders, owned, subscription_of

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    encode_assignment_user_data,
)
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import encode_assignment

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import Record

STAGED = "some partitions were released"


def working_on(
    *numbers: int, took: float = 0.0, eager: bool = False, **options: Unpack[ConsumerOptions]
) -> tuple[ScriptedGroup, dict[int, Record]]:
    """A member of 0 to 3 that works on one record of each of these; 0 stays its own, and the
    others have to go, by a rebalance that took so long."""
    options.setdefault("commit_mode", "ack")
    group = ScriptedGroup(eager=eager, **options)
    group.become_member(0, 1, 2, 3)
    records = {record.partition: record for record in group.receive(*numbers)}
    group.rebalance()
    group.pulse = ErrorCode.none
    if not eager:
        group.advance(took)
        group.rejoin(0)
        assert group.phase() is ClassicState.REVOKING
    assert group.step().to_be_revoked >= orders(1, 2, 3)
    return group, records


def finish(group: ScriptedGroup, record: Record) -> None:
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert record.topic_partition not in group.assigned


def staged(group: ScriptedGroup) -> int:
    """How many staged joins were sent, those of a retry included."""
    sent = [send.message for send in group.sent]
    return sum(isinstance(m, JoinGroupRequest) and m.reason == STAGED for m in sent)


def test_what_has_drained_leaves_the_list_while_the_others_stay_on_it() -> None:
    group, _records = working_on(3)
    group.step()
    assert group.assigned == orders(0, 3)
    group.advance(1.0)
    assert group.joining().reason == STAGED
    assert owned(group.joining()) == orders(0, 3)


def test_a_revocation_without_work_is_followed_by_a_join_at_once() -> None:
    group, _ = working_on()
    group.step()
    assert owned(group.joining()) == orders(0)
    assert staged(group) == 0


def test_a_partition_of_the_next_stage_waits_a_second_from_join_to_join() -> None:
    group, records = working_on(2, 3)
    group.step()
    group.advance(1.0)
    assert staged(group) == 1
    group.rejoin(0)
    finish(group, records[2])
    group.advance(0.9)
    assert staged(group) == 1
    group.advance(0.1)
    assert staged(group) == 2
    assert owned(group.joining()) == orders(0, 3)


def test_after_a_slow_rebalance_the_next_stage_waits_twice_as_long() -> None:
    group, _ = working_on(3, took=4.0)
    group.step()
    group.advance(3.9)
    assert staged(group) == 0
    group.advance(0.1)
    assert staged(group) == 1


def test_there_is_one_staged_join_at_a_time() -> None:
    group, records = working_on(2, 3)
    group.step()
    group.advance(1.0)
    finish(group, records[2])
    group.advance(10.0)
    assert staged(group) == 1
    group.respond_to_join()
    group.respond_to_sync(tp(0))
    group.advance(20.0)
    assert staged(group) == 2, "what was released meanwhile follows"


def test_a_rebalance_of_others_makes_a_staged_join_needless() -> None:
    group, _ = working_on(3)
    group.step()
    group.rebalance()
    assert group.joining().reason == "the group rebalances"
    assert owned(group.joining()) == orders(0, 3)
    group.rejoin(0)
    group.advance(20.0)
    assert staged(group) == 0, "nothing has been released since"


def test_the_last_partition_of_a_round_does_not_wait_for_its_stage() -> None:
    group, records = working_on(3)
    group.step()
    finish(group, records[3])
    assert owned(group.joining()) == orders(0)
    assert staged(group) == 0
    joins = group.count(JoinGroupRequest)
    group.rejoin(0)
    group.advance(20.0)
    assert group.count(JoinGroupRequest) == joins


def test_what_was_released_while_a_join_was_parked_is_handed_over_by_a_stage() -> None:
    group, records = working_on(2, 3)
    group.rebalance()
    finish(group, records[2])
    group.step()
    group.rejoin(0)
    assert group.phase() is ClassicState.REVOKING
    group.advance(1.0)
    assert staged(group) == 1
    assert owned(group.joining()) == orders(0, 3)


def test_a_partition_that_was_lost_alone_is_handed_over_by_a_stage_too() -> None:
    group, _ = working_on(2, 3, revoke_timeout=4.0)
    group.core.revocation.delay(orders(2))
    group.step()
    group.advance(1.0)
    group.rejoin(0)
    group.advance(3.0)
    assert group.assigned == orders(0)
    assert owned(group.joining()) == orders(0)


def test_a_join_that_waits_for_the_coordinator_lists_what_is_owned_when_it_is_sent() -> None:
    group, _ = working_on(2, 3, revoke_timeout=4.0)
    group.core.revocation.delay(orders(2))
    group.step()
    group.silent.add(FindCoordinatorRequest)
    group.fail(group.beat(), FailureKind.DISCONNECTED)
    joins = group.count(JoinGroupRequest)
    group.advance(1.0)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.assigned == orders(0, 2, 3)
    group.advance(3.0)
    assert group.assigned == orders(0)
    assert group.count(JoinGroupRequest) == joins
    group.silent.clear()
    for search in group.sends(FindCoordinatorRequest):
        group._respond_automatically(search)
    group.advance(0.0)
    assert owned(group.joining()) == orders(0)
    group.rejoin(0, 2, 3)
    assert group.assigned == orders(0, 2, 3)


def test_an_eager_member_never_stages() -> None:
    group, _ = working_on(3, eager=True)
    group.step()
    assert group.assigned == orders(3)
    group.pulse = ErrorCode.rebalance_in_progress
    group.advance(20.0)
    assert staged(group) == 0
    assert group.phase() is ClassicState.REVOKING


def test_a_partition_that_returns_to_its_member_is_no_handover() -> None:
    group, _ = working_on(3)
    group.step()
    group.rebalance()
    group.rejoin(0, 1, 2, 3)
    assert group.phase() is ClassicState.STABLE
    group.advance(20.0)
    assert staged(group) == 0


# --- a member that stops ------------------------------------------------------------------------


def stopping(*, ours: bool, **options: Unpack[ConsumerOptions]) -> ScriptedGroup:
    """A member of 0 and 1 that stops, with a task at work on 1. ``ours``: so is the leader."""
    group = ScriptedGroup(**options)
    group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
    group.start()
    if group.config.group_instance_id is None:
        group.give_id()
    group.respond_to_join()
    sync(group, 0, 1, ours=ours)
    (record,) = group.receive(1)
    assert group.core.returned_records.submit(record)
    group.step()
    group.pulse = ErrorCode.none
    group.advance(5.0)
    group.close()
    assert group.assigned == orders(1)
    return group


def sync(group: ScriptedGroup, *numbers: int, ours: bool) -> None:
    note = (
        encode_assignment_user_data(AssignmentUserData(withheld=False, partitions=0))
        if ours
        else b""
    )
    send, _ = group.only(SyncGroupRequest)
    data = encode_assignment([tp(number) for number in numbers], note)
    group.reply(send, SyncGroupResponse(error=ErrorCode.none, assignment=data))


def test_a_member_that_stops_hands_over_to_a_leader_of_ours() -> None:
    group = stopping(ours=True)
    group.advance(0.01)
    assert staged(group) == 1
    assert subscription_of(group.joining()).topics == ()
    assert owned(group.joining()) == orders(1)
    assert group.count(LeaveGroupRequest) == 0
    group.respond_to_join()
    sync(group, ours=True)
    assert group.phase() is ClassicState.REVOKING
    assert group.assigned == orders(1)


def test_it_leaves_when_the_last_one_has_drained_also_with_its_join_parked() -> None:
    group = stopping(ours=True, close_timeout=10.0)
    group.advance(0.01)
    assert group.phase() is ClassicState.AWAIT_JOIN
    group.advance(6.0)  # and 5 s are kept for leaving
    assert group.leaving().member_id == "member-1"


def test_it_joins_with_what_it_has_when_others_make_the_group_rebalance() -> None:
    group = stopping(ours=True)
    group.respond_to_beat(ErrorCode.rebalance_in_progress)
    assert subscription_of(group.joining()).topics == ()
    assert owned(group.joining()) == orders(1)


@pytest.mark.parametrize(
    ("ours", "group_instance_id"), [(False, None), (False, "one"), (True, "one")]
)
def test_it_does_not_join_where_that_would_give_it_new_partitions_or_take_its_place(
    ours: bool, group_instance_id: str | None
) -> None:
    group = stopping(ours=ours, group_instance_id=group_instance_id)
    group.advance(1.0)
    group.respond_to_beat(ErrorCode.rebalance_in_progress)
    assert group.count(JoinGroupRequest) == (1 if group_instance_id else 2)
    assert group.phase() is ClassicState.REVOKING


def test_what_a_foreign_leader_that_has_taken_over_assigns_to_it_is_not_taken() -> None:
    group = stopping(ours=True)
    group.advance(0.01)
    group.respond_to_join()
    sync(group, 0, 1, 2, ours=False)
    assert group.assigned == orders(1)
    group.advance(3.0)
    assert staged(group) == 1
