"""Commits that the broker rejects: tried again, raised by commit(), given up at a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.errors import PartitionLostError, PartitionsError, TopicAuthorizationError
from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.core.io.effects import CompleteRequest, Send

REJECTED = ErrorCode.topic_authorization_failed
RETRIED = "commit rejected, trying again; records may be processed again"
ACCEPTED = "commits are accepted again"
UNCOMMITTED = "released without its final commit; records may be processed again"


class Guarded(ScriptedGroup):
    """A member whose commits of the partitions in ``rejected`` the broker rejects."""

    rejected: frozenset[int] = frozenset()

    def respond(self) -> dict[int, int]:
        """Respond to the OffsetCommit that is open; the offsets that it has."""
        send, request = self.only(OffsetCommitRequest)
        offsets = {entry.partition.partition: entry.offset for entry in request.entries}
        errors = tuple(
            (tp(number), REJECTED if number in self.rejected else ErrorCode.none)
            for number in offsets
        )
        self.committed.update(
            {
                tp(number): offset
                for number, offset in offsets.items()
                if number not in self.rejected
            }
        )
        self.reply(send, OffsetCommitResponse(errors=errors))
        return offsets

    def respond_to_fetch(self, asked: Send, offset: int) -> None:
        """The broker held this offset of the first partition when it was asked."""
        held = FetchedOffset(partition=tp(0), error=ErrorCode.none, offset=offset)
        self.reply(asked, OffsetFetchResponse(error=ErrorCode.none, offsets=(held,)))

    def done(self, *numbers: int) -> None:
        """One more record of each is done."""
        self.receive(*numbers)
        self.step()

    def commit(self, offsets: dict[int, int] | None = None) -> int:
        wanted = None
        if offsets is not None:
            wanted = {tp(number): OffsetAndMetadata(at) for number, at in offsets.items()}
        call_id = self.core.commit(self.now, wanted)
        self.run_until_idle()
        return call_id

    def completion(self, call_id: int) -> CompleteRequest:
        return self.completed[call_id]

    def lines(self, event: str) -> list[dict[str, object]]:
        return [emit.fields for emit in self.events if emit.event == event]


def member(*numbers: int, **options: Unpack[ConsumerOptions]) -> Guarded:
    group = Guarded(**options)
    group.become_member(*(numbers or (0, 1)))
    group.pulse = ErrorCode.none
    return group


def manual() -> Guarded:
    return member(0, 1, commit_mode="manual")


def test_a_rejected_commit_is_tried_again_while_the_others_continue() -> None:
    group = member(commit_interval=0.1)
    group.rejected = frozenset({0})
    group.done(0, 1)
    group.advance(0.1)
    assert group.respond() == {0: 1, 1: 1}
    assert [line["partition"] for line in group.lines(RETRIED)] == ["orders-0"]

    group.done(1)
    group.advance(0.1)
    assert group.respond() in ({1: 2}, {0: 1, 1: 2})
    attempts = 0
    for _ in range(200):
        group.advance(0.1)
        if group.sends(OffsetCommitRequest):
            assert group.respond() == {0: 1}
            attempts += 1
    assert 4 <= attempts <= 12, "with a backoff of some seconds at most"
    assert len(group.lines(RETRIED)) in (2, 3), "a line in ten seconds"
    assert group.step().records == [], "it is not an error of the iterator"

    group.rejected = frozenset()
    group.advance(10.0)
    assert group.respond() == {0: 1}
    assert len(group.lines(ACCEPTED)) == 1
    group.done(0)
    group.advance(0.1)
    assert group.respond() == {0: 2}


def test_commit_raises_what_its_own_attempt_was_rejected_with() -> None:
    group = member()
    group.rejected = frozenset({0})
    group.done(0, 1)
    call_id = group.commit()
    group.respond()
    error = group.completion(call_id).error
    assert isinstance(error, TopicAuthorizationError)
    assert error.partitions == orders(0)


def test_commit_of_a_rejected_partition_is_sent_at_once_and_succeeds_once_acknowledged() -> None:
    group = member()
    group.rejected = frozenset({0})
    group.done(0)
    for _ in range(6):
        call_id = group.commit()
        group.respond()
        assert group.completion(call_id).error is not None
    group.rejected = frozenset()
    call_id = group.commit()
    assert call_id not in group.completed
    assert group.respond() == {0: 1}
    assert group.completion(call_id).error is None


def test_a_commit_asked_for_while_another_is_in_flight_does_not_fail_with_that_one() -> None:
    group = member()
    group.rejected = frozenset({0})
    group.done(0)
    first = group.commit()
    group.done(0)
    second = group.commit()
    group.respond()
    assert group.completion(first).error is not None
    assert second not in group.completed
    group.rejected = frozenset()
    assert group.respond() == {0: 2}, "at once, as somebody waits for it"
    assert group.completion(second).error is None


def test_at_a_revoke_a_rejected_commit_gets_one_last_attempt_and_then_the_partition_goes() -> None:
    group = member()
    group.rejected = frozenset({0})
    group.done(0)
    for _ in range(8):
        group.commit()
        group.respond()
    group.rebalance()
    group.rejoin(1)
    assert group.step().to_be_revoked == orders(0)
    assert not group.sends(OffsetCommitRequest), "its backoff has grown to some seconds"
    assert group.poll() is None
    assert group.committing() == {tp(0): 1}, "at once"
    call_id = group.commit()
    assert group.assigned == orders(0, 1)
    group.respond()
    assert group.assigned == orders(1)
    (line,) = group.lines(UNCOMMITTED)
    assert line["partition"] == "orders-0"
    assert isinstance(group.completion(call_id).error, TopicAuthorizationError)
    assert not group.step().lost, "it was released, and not lost"


def test_a_final_commit_that_is_rejected_at_first_is_sent_once_more() -> None:
    group = member()
    group.done(0)
    group.rebalance()
    group.rejoin(1)
    group.step()
    group.rejected = frozenset({0})
    assert group.poll() is None
    group.respond()
    assert group.assigned == orders(0, 1)
    group.rejected = frozenset()
    group.advance(0.5)
    assert group.respond() == {0: 1}
    assert group.assigned == orders(1)
    assert not group.lines(UNCOMMITTED)


def test_closing_raises_the_rejection_after_the_group_was_left() -> None:
    group = member()
    group.rejected = frozenset({0})
    group.done(0, 1)
    call_id = group.close()
    assert group.respond() == {0: 1, 1: 1}
    group.advance(0.5)
    assert group.respond() == {0: 1}
    assert call_id not in group.completed
    assert group.count(LeaveGroupRequest) == 1
    group.respond_to_leave()
    assert isinstance(group.completion(call_id).error, TopicAuthorizationError)
    assert len(group.lines(UNCOMMITTED)) == 1
    assert group.committed[tp(1)] == 1


@pytest.mark.parametrize("position", ["known", "unknown"])
def test_commit_fails_if_the_partition_goes_before_the_response_to_the_commit(
    position: str,
) -> None:
    group = manual() if position == "known" else without_position()
    call_id = group.commit({0: 5})
    group.close()
    group.advance(group.config.close_timeout + 1.0)
    assert isinstance(group.completion(call_id).error, PartitionLostError)


# --- commit_mode="manual" ------------------------------------------------------------------------


def test_what_the_user_asked_for_and_was_rejected_is_not_sent_again_by_itself() -> None:
    group = manual()
    group.rejected = frozenset({0})
    call_id = group.commit({0: 5, 1: 5})
    group.respond()
    error = group.completion(call_id).error
    assert isinstance(error, TopicAuthorizationError)
    assert error.partitions == orders(0)
    assert len(group.lines("commit rejected; it is not tried again")) == 1
    group.advance(60.0)
    assert group.count(OffsetCommitRequest) == 1

    group.rejected = frozenset()
    call_id = group.commit({0: 4})
    assert group.respond() == {0: 4}
    assert group.completion(call_id).error is None


def test_a_request_that_replaces_a_rejected_one_is_sent() -> None:
    group = manual()
    group.rejected = frozenset({0})
    first = group.commit({0: 5})
    second = group.commit({0: 6})
    group.respond()
    assert isinstance(group.completion(first).error, PartitionsError)
    group.rejected = frozenset()
    assert group.respond() == {0: 6}
    assert group.completion(second).error is None


def test_calls_that_replace_one_another_in_flight_are_all_completed() -> None:
    group = manual()
    calls = [group.commit({0: 5}), group.commit({0: 3}), group.commit({0: 5})]
    assert group.respond() == {0: 5}
    assert not group.sends(OffsetCommitRequest), "what was asked for last is committed"
    assert [group.completion(call_id).error for call_id in calls] == [None] * 3


# --- before the position is known ----------------------------------------------------------------


def without_position() -> Guarded:
    """A member whose broker has not responded yet what is committed."""
    group = Guarded(commit_mode="manual")
    group.silent.add(OffsetFetchRequest)
    group.committed[tp(0)] = 3
    group.produce(0, 10)
    group.become_member(0)
    group.pulse = ErrorCode.none
    assert group.core.position(tp(0)) is None
    return group


@pytest.mark.parametrize("late", ["while the commit is in flight", "after it"])
def test_an_offset_committed_before_the_position_is_known_is_where_the_partition_begins(
    late: str,
) -> None:
    group = without_position()
    (asked,) = group.sends(OffsetFetchRequest)
    call_id = group.commit({0: 7})
    assert group.committing() == {tp(0): 7}
    assert call_id not in group.completed
    group.silent.clear()
    if late == "while the commit is in flight":
        group.respond_to_fetch(asked, 3)
        assert group.core.position(tp(0)) is None
        group.respond()
    else:
        group.respond()
        group.respond_to_fetch(asked, 3)
    assert group.completion(call_id).error is None
    group.advance(2.0)
    assert group.core.position(tp(0)) == 7
    assert [record.offset for record in group.step().records] == [7, 8, 9]


def test_a_partition_whose_commit_was_rejected_begins_where_it_was_committed_before() -> None:
    group = without_position()
    group.rejected = frozenset({0})
    call_id = group.commit({0: 7})
    group.respond()
    assert isinstance(group.completion(call_id).error, TopicAuthorizationError)
    group.silent.clear()
    group.respond_to_fetch(group.only(OffsetFetchRequest)[0], 3)
    assert group.core.position(tp(0)) == 3


def test_a_partition_without_an_offset_begins_where_the_user_commits_it() -> None:
    group = Guarded(commit_mode="manual", auto_offset_reset="error")
    group.committed[tp(0)] = -1
    group.produce(0, 10)
    group.become_member(0)
    group.pulse = ErrorCode.none
    call_id = group.commit({0: 7})
    group.respond()
    assert group.completion(call_id).error is None
    assert group.core.position(tp(0)) == 7
    records = group.step().records
    assert [record.offset for record in records] == [7, 8, 9], "NoOffsetError is out of date"


def test_a_partition_without_a_position_goes_when_its_commit_is_acknowledged() -> None:
    group = without_position()
    call_id = group.commit({0: 7})
    closing = group.close()
    assert group.assigned == orders(0)
    assert not group.sends(LeaveGroupRequest)
    group.respond()
    assert group.completion(call_id).error is None
    assert not group.assigned
    group.respond_to_leave()
    assert group.completion(closing).error is None
    assert not group.notices, "it was never shown as assigned"
