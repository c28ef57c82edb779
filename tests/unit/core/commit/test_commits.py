"""Commits: coalesced, one in flight, and each response with its meaning."""

from __future__ import annotations

import pytest
from unit.core.commit.scripted_commits import A, B, CommittingGroup

from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.io.effects import (
    Emit,
    Failed,
    FailureKind,
    Replied,
    TimerFired,
)
from asyncrevoke.client.core.partition.instance import InstanceState, InstanceTransition
from asyncrevoke.client.errors import GroupAuthorizationError
from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetFetchResponse,
)


def test_one_request_carries_every_partition_that_owes_something() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.done(group.b, 7)
    group.commits.flush(0.0)
    send, offsets = group.commit()
    assert offsets == {A: 5, B: 7}
    group.respond(send)
    assert (group.a.committed_offset, group.b.committed_offset) == (5, 7)
    assert not group.sent()


def test_what_is_done_while_one_is_in_flight_goes_with_the_next() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    assert not group.sent(), "at most one is in flight"
    group.respond(send)
    assert group.commit()[1] == {A: 10}


@pytest.mark.parametrize(
    "error",
    [code for code, action in COMMIT_ERRORS.items() if action is CommitErrorAction.MEMBERSHIP],
)
def test_an_error_for_the_current_membership_counts(error: ErrorCode) -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.respond(send, a=error)
    assert group.member.heard == [error]


@pytest.mark.parametrize(
    "error",
    [code for code, action in COMMIT_ERRORS.items() if action is CommitErrorAction.UNKNOWN_TOPIC],
)
def test_a_topic_that_the_coordinator_does_not_know_holds_no_other_up(error: ErrorCode) -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.done(group.b, 7)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.respond(send, a=error)
    assert group.b.committed_offset == 7
    group.done(group.b, 1)
    group.commits.flush(1.0)
    send, offsets = group.commit()
    assert offsets == {B: 8}
    group.respond(send)
    group.outbox.route(2.0, TimerFired("commit-unknown-topic"))
    assert group.commit()[1] == {A: 5}


@pytest.mark.parametrize("error", [ErrorCode.illegal_generation, ErrorCode.unknown_member_id])
def test_a_commit_rejected_for_its_generation_is_retried_with_the_new_one(error: ErrorCode) -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.member.member_identity = group.member.member_identity._replace(generation=4)
    group.respond(send, a=error)
    assert group.member.heard == []
    group.retry()
    send, offsets = group.commit()
    assert isinstance(send.message, OffsetCommitRequest)
    assert send.message.generation == 4
    assert offsets == {A: 5}


def test_between_join_and_sync_nothing_is_sent_and_afterwards_everything() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.member.may_commit = False
    group.commits.flush(0.0)
    assert not group.sent()
    group.member.may_commit = True
    group.commits.resume(0.0)
    assert group.commit()[1] == {A: 5}


def test_a_lost_partition_is_never_committed_again() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.done(group.b, 5)
    group.assignment.end(group.a, InstanceTransition.LOSE)
    group.commits.flush(0.0)
    assert group.commit()[1] == {B: 5}


def test_after_a_lost_response_offsets_are_committed_again_and_verified_before_the_release() -> (
    None
):
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.DISCONNECTED, "reset"))
    assert group.coordinator.searches
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 5}
    group.a.transition(InstanceTransition.REVOKE)
    group.respond(send)
    assert not group.commits.is_acknowledged(group.a)
    group.holds(5)
    assert group.commits.is_acknowledged(group.a)
    assert group.acknowledged[-1] is group.a


def test_a_commit_that_a_late_one_has_rewound_is_sent_again() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.TIMEOUT))
    group.done(group.a, 5)
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 10}
    group.a.transition(InstanceTransition.REVOKE)
    group.respond(send)
    group.holds(5)
    assert not group.commits.is_acknowledged(group.a)
    group.retry()
    assert group.commit()[1] == {A: 10}


def test_one_line_names_all_partitions_whose_offsets_a_delayed_commit_has_rewound() -> None:
    group = CommittingGroup()
    for instance in (group.a, group.b):
        group.done(instance, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.TIMEOUT))
    for instance in (group.a, group.b):
        group.done(instance, 5)
    group.retry()
    for instance in (group.a, group.b):
        instance.transition(InstanceTransition.REVOKE)
    group.respond(group.commit()[0])
    (verify,) = group.sent()
    held = tuple(FetchedOffset(partition=tp, error=ErrorCode.none, offset=5) for tp in (A, B))
    group.event(Replied(verify.request_id, OffsetFetchResponse(error=ErrorCode.none, offsets=held)))
    (line,) = [each for each in group.outbox.take() if isinstance(each, Emit)]
    assert line.event == "committed offset rewound by delayed commit; recommitting"
    assert line.fields["offsets"] == {"orders-0": 5, "orders-1": 5}


def test_a_commit_of_which_a_late_one_has_rewound_the_map_alone_is_sent_again() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.TIMEOUT))
    group.retry()
    group.a.transition(InstanceTransition.REVOKE)
    group.respond(group.commit()[0])
    (verify,) = group.sent()
    older = FetchedOffset(partition=A, error=ErrorCode.none, offset=5, metadata="another map")
    group.event(
        Replied(verify.request_id, OffsetFetchResponse(error=ErrorCode.none, offsets=(older,)))
    )
    assert not group.commits.is_acknowledged(group.a)
    group.retry()
    assert group.commit()[1] == {A: 5}


def test_what_was_verified_after_a_lost_response_is_verified_again_before_the_release() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.DISCONNECTED, "reset"))
    group.done(group.a, 5)
    group.retry()
    group.respond(group.commit()[0])
    group.commits.flush(0.1)
    group.holds(10)
    assert group.commits.is_acknowledged(group.a)
    group.commits.flush(0.2)
    assert not group.sent(), "nothing is asked while it is kept"

    group.a.transition(InstanceTransition.REVOKE)
    assert not group.commits.is_acknowledged(group.a)
    group.commits.flush(0.3)
    group.holds(5)
    assert not group.commits.is_acknowledged(group.a)
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 10}, "the commit whose response was lost came after all"
    group.respond(send)
    group.holds(10)
    assert group.commits.is_acknowledged(group.a)


def test_a_request_that_never_left_needs_no_verification() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.UNREACHABLE))
    group.retry()
    send, _ = group.commit()
    group.respond(send)
    assert group.commits.is_acknowledged(group.a)


def test_one_rejected_topic_does_not_hold_the_others_back() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.done(group.b, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.respond(send, a=ErrorCode.topic_authorization_failed)
    assert group.errors == [], "it is tried again, and raised by commit() alone"
    assert group.b.committed_offset == 5
    assert not group.sent()


def test_a_rejected_group_ends_the_consumer() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.respond(send, a=ErrorCode.group_authorization_failed)
    assert [type(error) for error in group.errors] == [GroupAuthorizationError]


def test_rebalance_in_progress_starts_a_rejoin_and_the_commit_is_retried() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.respond(send, a=ErrorCode.rebalance_in_progress)
    assert group.member.rebalances == 1
    group.commits.resume(2.0)
    assert group.commit()[1] == {A: 5}


def test_metadata_that_is_too_large_is_left_out() -> None:
    group = CommittingGroup(commit_mode="manual")
    group.commits.request(0.0, 1, {A: OffsetAndMetadata(1, "x" * 9000)})
    send, _ = group.commit()
    group.respond(send, a=ErrorCode.offset_metadata_too_large)
    (send,) = group.sent()
    assert isinstance(send.message, OffsetCommitRequest)
    assert send.message.entries[0].metadata == ""


def test_a_position_from_the_reset_policy_is_owed_at_once() -> None:
    group = CommittingGroup()
    group.assignment.set_position(group.a, 0)
    group.a.commit_required = True
    assert group.a.state is InstanceState.ACTIVE
    assert not group.commits.is_acknowledged(group.a)
    group.commits.flush(0.0)
    send, offsets = group.commit()
    assert offsets == {A: 0}
    group.respond(send)
    assert group.commits.is_acknowledged(group.a)
