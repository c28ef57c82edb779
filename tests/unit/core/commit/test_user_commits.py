"""Commits that the user asks for: when each call is completed, and with what."""

from __future__ import annotations

import pytest
from unit.core.commit.scripted_commits import A, CommittingGroup

from asyncrevoke.client.core.io.effects import (
    CompleteRequest,
    Send,
)
from asyncrevoke.client.core.partition.instance import InstanceTransition
from asyncrevoke.client.errors import PartitionLostError
from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    OffsetCommitRequest,
)


def test_a_user_s_commit_is_completed_when_it_is_acknowledged() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    send, _ = group.commit()
    group.respond(send)
    assert group.completed() == [CompleteRequest(1)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.unknown_server_error,
    ],
)
def test_a_commit_that_the_broker_may_not_have_stored_is_not_acknowledged(
    error: ErrorCode,
) -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    send, _ = group.commit()
    group.respond(send, a=error)
    assert group.completed() == []
    assert not group.commits.is_acknowledged(group.a)
    assert group.coordinator.searches
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 5}
    group.respond(send)
    assert CompleteRequest(1) in group.outbox.take()


def test_a_user_s_commit_after_a_seek_back_is_completed_by_no_earlier_commit() -> None:
    group = CommittingGroup()
    group.done(group.a, 9)
    group.commits.flush(0.0)
    before, _ = group.commit()
    group.assignment.set_position(group.a, 0)
    group.a.commit_required = True
    group.commits.request(0.0, 1, None)
    group.respond(before)
    effects = group.outbox.take()
    assert CompleteRequest(1) not in effects
    (send,) = [effect for effect in effects if isinstance(effect, Send)]
    assert isinstance(send.message, OffsetCommitRequest)
    assert [entry.offset for entry in send.message.entries] == [0]
    group.respond(send)
    assert group.completed() == [CompleteRequest(1)]


def test_a_user_s_commit_with_nothing_owed_is_completed_at_once() -> None:
    group = CommittingGroup()
    group.commits.request(0.0, 1, None)
    assert group.completed() == [CompleteRequest(1)]


def test_a_user_s_commit_fails_if_its_partition_is_lost_meanwhile() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    group.sent()
    group.assignment.end(group.a, InstanceTransition.LOSE)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)
    assert complete.error.partitions == {A}


def test_a_user_s_commit_fails_if_its_partition_is_released_before_it_is_acknowledged() -> None:
    group = CommittingGroup()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    group.sent()
    for step in (InstanceTransition.REVOKE, InstanceTransition.ANNOUNCE, InstanceTransition.COMMIT):
        group.a.transition(step)
    group.assignment.end(group.a, InstanceTransition.RELEASE)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)


def test_by_hand_only_what_was_asked_for_is_committed_and_it_may_rewind() -> None:
    group = CommittingGroup(commit_mode="manual")
    group.done(group.a, 9)
    group.commits.flush(0.0)
    assert not group.sent()
    group.commits.request(0.0, 1, {A: OffsetAndMetadata(8, "note")})
    send, offsets = group.commit()
    assert offsets == {A: 8}
    group.commits.request(0.0, 2, {A: OffsetAndMetadata(3)})
    group.respond(send)
    effects = group.outbox.take()
    assert CompleteRequest(1) in effects
    assert CompleteRequest(2) not in effects
    (send,) = [effect for effect in effects if isinstance(effect, Send)]
    group.respond(send)
    assert group.completed() == [CompleteRequest(2)]
    assert group.a.committed_offset == 3


def test_by_hand_a_commit_of_a_strange_partition_sends_nothing() -> None:
    group = CommittingGroup(commit_mode="manual")
    stranger = TopicPartition("orders", 9)
    offsets = {A: OffsetAndMetadata(1), stranger: OffsetAndMetadata(1)}
    group.commits.request(0.0, 1, offsets)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)
    assert complete.error.partitions == {stranger}
