"""Commits: coalesced, one in flight, and each answer with its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from unit.core.ignored_reactions import IgnoredPartitions

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.commit.committer import Committer
from asyncrevoke.core.commit.completion_maps import CompletionMaps
from asyncrevoke.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.core.commit.requested_offsets import RequestedOffsets
from asyncrevoke.core.io.effects import (
    CompleteRequest,
    Event,
    Failed,
    FailureKind,
    Node,
    Replied,
    Send,
    TimerFired,
)
from asyncrevoke.core.io.outbox import Outbox
from asyncrevoke.core.partition.assignment import Assignment
from asyncrevoke.core.partition.instance import InstanceState, InstanceTransition
from asyncrevoke.errors import GroupAuthorizationError, PartitionLostError
from asyncrevoke.model import GroupMetadata, OffsetAndMetadata, TopicPartition
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.core.metadata.coordinator import Coordinator
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.errors import PartitionsError

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class KnownCoordinator:
    def __init__(self) -> None:
        self.node: Node | None = Node(1, "broker", 9092)
        self.searches: list[str] = []

    def call_when_known(self, _key: str, then: Callable[[float], None], now: float) -> None:
        then(now)

    def mark_unknown(self, _now: float, why: str, _asked: Node | None) -> None:
        self.searches.append(why)

    def unanswered(self, now: float, why: str, asked: Node | None) -> None:
        self.mark_unknown(now, why, asked)


class Member:
    def __init__(self) -> None:
        self.member_identity = GroupMetadata("billing", 3, "member-1", None)
        self.may_commit = True
        self.verdicts = True
        self.heard: list[ErrorCode] = []
        self.rebalances = 0

    def is_current_membership(self, sent: GroupMetadata, _sent_at: float) -> bool:
        return self.verdicts and sent == self.member_identity

    def rejected(self, now: float, error: ErrorCode) -> None:
        self.heard.append(error)

    def rebalance_seen(self, now: float) -> None:
        self.rebalances += 1


class WithoutTopicIds:
    """A cluster that has told no topic ids."""

    def topic_ids(self, _partitions: object) -> None:
        return None


class Group(IgnoredPartitions):
    """Commits of a member that holds two partitions at position 0."""

    def __init__(self, **options: object) -> None:
        self.outbox = Outbox()
        self.assignment = Assignment(self.outbox, self)
        self.coordinator = KnownCoordinator()
        self.member = Member()
        config = ConsumerConfig.from_options(group_id="billing", **options)
        self.commits = Committer(
            self.outbox,
            config,
            cast("ClusterMetadata", WithoutTopicIds()),
            cast("Coordinator", self.coordinator),
            self.assignment,
            CompletionMaps(self.outbox, config),
            RequestedOffsets(self.outbox),
            self,
        )
        self.errors: list[Exception] = []
        self.acknowledged: list[PartitionInstance] = []
        self.a, self.b = self.assignment.add([A, B])
        for instance in (self.a, self.b):
            self.assignment.set_position(instance, 0)
            instance.committed_offset = 0
        self.outbox.take()

    @property
    def committing_member(self) -> Member:
        return self.member

    def instance_ended(self, instance: PartitionInstance) -> None:
        self.commits.forget(instance)

    def commit_acknowledged(self, now: float, instances: Sequence[PartitionInstance]) -> None:
        self.acknowledged.extend(instances)

    def commit_rejected(
        self, now: float, instance: PartitionInstance, error: PartitionsError
    ) -> None:
        pass

    def commit_topic_unknown(self, now: float) -> None:
        pass

    def revocation_progressed(self, now: float) -> None:
        pass

    def failed(self, now: float, error: Exception) -> None:
        self.errors.append(error)

    def done(self, instance: PartitionInstance, count: int) -> None:
        assert instance.tracker is not None
        instance.tracker.deliver_untracked(count, instance.tracker.position + count, 7)
        instance.tracker.complete_pending()

    def sent(self) -> list[Send]:
        return [effect for effect in self.outbox.take() if isinstance(effect, Send)]

    def commit(self) -> tuple[Send, dict[TopicPartition, int]]:
        """The one OffsetCommit that leaves now, and its offsets."""
        (send,) = self.sent()
        assert isinstance(send.message, OffsetCommitRequest)
        return send, {entry.partition: entry.offset for entry in send.message.entries}

    def answer(self, send: Send, **errors: ErrorCode) -> None:
        assert isinstance(send.message, OffsetCommitRequest)
        partitions = [entry.partition for entry in send.message.entries]
        codes = {A: errors.get("a", ErrorCode.none), B: errors.get("b", ErrorCode.none)}
        response = OffsetCommitResponse(errors=tuple((tp, codes[tp]) for tp in partitions))
        self.event(Replied(send.request_id, response))

    def holds(self, offset: int) -> None:
        """The broker is asked what it holds of A, and answers."""
        (asked,) = self.sent()
        assert isinstance(asked.message, OffsetFetchRequest)
        held = FetchedOffset(partition=A, error=ErrorCode.none, offset=offset)
        answer = OffsetFetchResponse(error=ErrorCode.none, offsets=(held,))
        self.event(Replied(asked.request_id, answer))

    def event(self, event: Event) -> None:
        self.outbox.route(1.0, event)

    def retry(self) -> None:
        self.event(TimerFired("commit-retry"))

    def completed(self) -> list[CompleteRequest]:
        return [effect for effect in self.outbox.take() if isinstance(effect, CompleteRequest)]


def test_one_request_carries_every_partition_that_owes_something() -> None:
    group = Group()
    group.done(group.a, 5)
    group.done(group.b, 7)
    group.commits.flush(0.0)
    send, offsets = group.commit()
    assert offsets == {A: 5, B: 7}
    group.answer(send)
    assert (group.a.committed_offset, group.b.committed_offset) == (5, 7)
    assert not group.sent()


def test_what_is_done_while_one_is_in_flight_goes_with_the_next() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    assert not group.sent(), "at most one is in flight"
    group.answer(send)
    assert group.commit()[1] == {A: 10}


@pytest.mark.parametrize(
    "error",
    [code for code, verdict in COMMIT_ERRORS.items() if verdict is CommitErrorAction.MEMBERSHIP],
)
def test_a_verdict_about_the_present_membership_is_believed(error: ErrorCode) -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.answer(send, a=error)
    assert group.member.heard == [error]


@pytest.mark.parametrize(
    "error",
    [code for code, verdict in COMMIT_ERRORS.items() if verdict is CommitErrorAction.UNKNOWN_TOPIC],
)
def test_a_topic_that_the_coordinator_does_not_know_holds_no_other_up(error: ErrorCode) -> None:
    group = Group()
    group.done(group.a, 5)
    group.done(group.b, 7)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.answer(send, a=error)
    assert group.b.committed_offset == 7
    group.done(group.b, 1)
    group.commits.flush(1.0)
    send, offsets = group.commit()
    assert offsets == {B: 8}
    group.answer(send)
    group.outbox.route(2.0, TimerFired("commit-unknown-topic"))
    assert group.commit()[1] == {A: 5}


@pytest.mark.parametrize("error", [ErrorCode.illegal_generation, ErrorCode.unknown_member_id])
def test_a_stale_verdict_is_tried_again_with_the_new_generation(error: ErrorCode) -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.member.member_identity = group.member.member_identity._replace(generation=4)
    group.answer(send, a=error)
    assert group.member.heard == []
    group.retry()
    send, offsets = group.commit()
    assert isinstance(send.message, OffsetCommitRequest)
    assert send.message.generation == 4
    assert offsets == {A: 5}


def test_between_join_and_sync_nothing_is_sent_and_afterwards_everything() -> None:
    group = Group()
    group.done(group.a, 5)
    group.member.may_commit = False
    group.commits.flush(0.0)
    assert not group.sent()
    group.member.may_commit = True
    group.commits.resume(0.0)
    assert group.commit()[1] == {A: 5}


def test_a_lost_partition_is_never_committed_again() -> None:
    group = Group()
    group.done(group.a, 5)
    group.done(group.b, 5)
    group.assignment.end(group.a, InstanceTransition.LOSE)
    group.commits.flush(0.0)
    assert group.commit()[1] == {B: 5}


def test_a_lost_answer_is_committed_again_and_verified_before_the_release() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.DISCONNECTED, "reset"))
    assert group.coordinator.searches
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 5}
    group.a.transition(InstanceTransition.REVOKE)
    group.answer(send)
    assert not group.commits.is_acknowledged(group.a)
    group.holds(5)
    assert group.commits.is_acknowledged(group.a)
    assert group.acknowledged[-1] is group.a


def test_a_commit_that_a_late_one_has_rewound_is_sent_again() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.TIMEOUT))
    group.done(group.a, 5)
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 10}
    group.a.transition(InstanceTransition.REVOKE)
    group.answer(send)
    group.holds(5)
    assert not group.commits.is_acknowledged(group.a)
    group.retry()
    assert group.commit()[1] == {A: 10}


def test_a_commit_of_which_a_late_one_has_rewound_the_map_alone_is_sent_again() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.TIMEOUT))
    group.retry()
    group.a.transition(InstanceTransition.REVOKE)
    group.answer(group.commit()[0])
    (verify,) = group.sent()
    older = FetchedOffset(partition=A, error=ErrorCode.none, offset=5, metadata="another map")
    group.event(
        Replied(verify.request_id, OffsetFetchResponse(error=ErrorCode.none, offsets=(older,)))
    )
    assert not group.commits.is_acknowledged(group.a)
    group.retry()
    assert group.commit()[1] == {A: 5}


def test_what_was_verified_after_a_lost_answer_is_verified_again_before_the_release() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.DISCONNECTED, "reset"))
    group.done(group.a, 5)
    group.retry()
    group.answer(group.commit()[0])
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
    assert offsets == {A: 10}, "the commit whose answer was lost came after all"
    group.answer(send)
    group.holds(10)
    assert group.commits.is_acknowledged(group.a)


def test_a_request_that_never_left_needs_no_verification() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.event(Failed(send.request_id, FailureKind.UNREACHABLE))
    group.retry()
    send, _ = group.commit()
    group.answer(send)
    assert group.commits.is_acknowledged(group.a)


def test_one_refused_topic_does_not_hold_the_others_back() -> None:
    group = Group()
    group.done(group.a, 5)
    group.done(group.b, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.answer(send, a=ErrorCode.topic_authorization_failed)
    assert group.errors == [], "it is tried again, and raised by commit() alone"
    assert group.b.committed_offset == 5
    assert not group.sent()


def test_a_refused_group_ends_the_consumer() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.answer(send, a=ErrorCode.group_authorization_failed)
    assert [type(error) for error in group.errors] == [GroupAuthorizationError]


def test_rebalance_in_progress_is_told_to_the_membership_and_tried_again() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.flush(0.0)
    send, _ = group.commit()
    group.answer(send, a=ErrorCode.rebalance_in_progress)
    assert group.member.rebalances == 1
    group.commits.resume(2.0)
    assert group.commit()[1] == {A: 5}


def test_a_user_s_commit_is_answered_when_it_is_acknowledged() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    send, _ = group.commit()
    group.answer(send)
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
    group = Group()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    send, _ = group.commit()
    group.answer(send, a=error)
    assert group.completed() == []
    assert not group.commits.is_acknowledged(group.a)
    assert group.coordinator.searches
    group.retry()
    send, offsets = group.commit()
    assert offsets == {A: 5}
    group.answer(send)
    assert CompleteRequest(1) in group.outbox.take()


def test_a_user_s_commit_after_a_seek_back_is_answered_by_no_earlier_commit() -> None:
    group = Group()
    group.done(group.a, 9)
    group.commits.flush(0.0)
    before, _ = group.commit()
    group.assignment.set_position(group.a, 0)
    group.a.commit_required = True
    group.commits.request(0.0, 1, None)
    group.answer(before)
    effects = group.outbox.take()
    assert CompleteRequest(1) not in effects
    (send,) = [effect for effect in effects if isinstance(effect, Send)]
    assert isinstance(send.message, OffsetCommitRequest)
    assert [entry.offset for entry in send.message.entries] == [0]
    group.answer(send)
    assert group.completed() == [CompleteRequest(1)]


def test_a_user_s_commit_with_nothing_owed_is_answered_at_once() -> None:
    group = Group()
    group.commits.request(0.0, 1, None)
    assert group.completed() == [CompleteRequest(1)]


def test_a_user_s_commit_fails_if_its_partition_is_lost_meanwhile() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    group.sent()
    group.assignment.end(group.a, InstanceTransition.LOSE)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)
    assert complete.error.partitions == {A}


def test_a_user_s_commit_fails_if_its_partition_is_released_before_it_is_acknowledged() -> None:
    group = Group()
    group.done(group.a, 5)
    group.commits.request(0.0, 1, None)
    group.sent()
    for step in (InstanceTransition.REVOKE, InstanceTransition.ANNOUNCE, InstanceTransition.COMMIT):
        group.a.transition(step)
    group.assignment.end(group.a, InstanceTransition.RELEASE)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)


def test_by_hand_only_what_was_asked_for_is_committed_and_it_may_rewind() -> None:
    group = Group(commit_mode="manual")
    group.done(group.a, 9)
    group.commits.flush(0.0)
    assert not group.sent()
    group.commits.request(0.0, 1, {A: OffsetAndMetadata(8, "note")})
    send, offsets = group.commit()
    assert offsets == {A: 8}
    group.commits.request(0.0, 2, {A: OffsetAndMetadata(3)})
    group.answer(send)
    effects = group.outbox.take()
    assert CompleteRequest(1) in effects
    assert CompleteRequest(2) not in effects
    (send,) = [effect for effect in effects if isinstance(effect, Send)]
    group.answer(send)
    assert group.completed() == [CompleteRequest(2)]
    assert group.a.committed_offset == 3


def test_by_hand_a_commit_of_a_strange_partition_sends_nothing() -> None:
    group = Group(commit_mode="manual")
    stranger = TopicPartition("orders", 9)
    offsets = {A: OffsetAndMetadata(1), stranger: OffsetAndMetadata(1)}
    group.commits.request(0.0, 1, offsets)
    (complete,) = group.completed()
    assert isinstance(complete.error, PartitionLostError)
    assert complete.error.partitions == {stranger}


def test_metadata_that_is_too_large_is_left_out() -> None:
    group = Group(commit_mode="manual")
    group.commits.request(0.0, 1, {A: OffsetAndMetadata(1, "x" * 9000)})
    send, _ = group.commit()
    group.answer(send, a=ErrorCode.offset_metadata_too_large)
    (send,) = group.sent()
    assert isinstance(send.message, OffsetCommitRequest)
    assert send.message.entries[0].metadata == ""


def test_a_position_from_the_reset_policy_is_owed_at_once() -> None:
    group = Group()
    group.assignment.set_position(group.a, 0)
    group.a.commit_required = True
    assert group.a.state is InstanceState.ACTIVE
    assert not group.commits.is_acknowledged(group.a)
    group.commits.flush(0.0)
    send, offsets = group.commit()
    assert offsets == {A: 0}
    group.answer(send)
    assert group.commits.is_acknowledged(group.a)
