"""Records that have ended without being done, when their partition goes on after all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.errors import OffsetOutOfRangeError
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetCommitRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import OffsetReset
    from asyncrevoke.client.model import Record


def member() -> ScriptedGroup:
    group = ScriptedGroup(commit_mode="ack", auto_offset_reset="earliest")
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    return group


def read(group: ScriptedGroup, count: int, *, submit: bool = False) -> list[Record]:
    """The next records, which tasks run with ``submit``; a fetch that waits for other partitions
    takes half a second."""
    records: list[Record] = []
    deadline = group.now + 2
    while len(records) < count:
        assert group.now < deadline, records
        returned = group.step().records
        if submit:
            assert all(map(group.core.returned_records.submit, returned))
        records.extend(returned)
        group.advance(0.1)
    return records


def after_a_task_group(max_poll_records: int = 500) -> ScriptedGroup:
    """A member that has left a task group. The revocation of partition 1 was withdrawn: two of its
    records were abandoned, those before and after them are done, and another one follows."""
    group = ScriptedGroup(auto_offset_reset="earliest", max_poll_records=max_poll_records)
    tracker = group.core.returned_records
    tracker.track(one_by_one=True, next_poll_completes=True)
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    group.produce(1, 4)
    first, *abandoned, last = read(group, 4, submit=True)
    group.complete(first)
    group.complete(last)
    tracker.abandon_all(group.now, abandoned)
    tracker.track(one_by_one=False)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    group.rejoin(0, 1)
    group.produce(1)
    return group


def committed_at_last(group: ScriptedGroup) -> int:
    """The offset of partition 1 after all commits that are due."""
    for _ in range(3):
        for send in group.sends(OffsetCommitRequest):
            group.respond_to_commit(send=send)
        group.advance(2)
    return group.committed[tp(1)]


def with_deleted_records(
    log_start: int, policy: OffsetReset, log_end: int | None = None
) -> ScriptedGroup:
    """A member that is to read the second and the fourth of five records again, of which the third
    is done and the last in flight, when the records before ``log_start`` are deleted, or those from
    ``log_end`` on are lost."""
    group = ScriptedGroup(commit_mode="ack", auto_offset_reset=policy)
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    group.produce(1, 5)
    records = read(group, 5)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    for index in (0, 2):
        group.complete(records[index])
    group.core.returned_records.abandon_all(group.now, [records[1], records[3]])
    group.produce(1, max(0, log_start + 1 - 5))
    if log_end is not None:
        group.logs[tp(1)].truncate(log_end)
    group.logs[tp(1)].delete_before(log_start)
    group.rebalance()
    group.rejoin(0, 1)
    return group


class SingleRecords:
    """A user who takes records one by one."""

    def __init__(self, group: ScriptedGroup) -> None:
        self.returned = 0
        self._group = group
        self._records: Sequence[Record] = ()
        self._end = 0

    def begin(self, records: Sequence[Record]) -> None:
        self._records = records
        self.returned, self._end = 0, len(records)

    def end(self) -> None:
        self._end = self.returned

    def step(self) -> None:
        group = self._group
        assert group.core.poll(group.now, expired=True, reader=self) is not None
        group.run_until_idle()
        group.advance(0.1)

    def take(self) -> int:
        """The offset of the next record."""
        deadline = self._group.now + 2
        while self.returned == self._end:
            assert self._group.now < deadline
            self.step()
        self.returned += 1
        return self._records[self.returned - 1].offset


def test_a_withdrawn_revoke_reads_again_what_was_abandoned_meanwhile() -> None:
    group = member()
    group.produce(1, 3)
    first, second, third = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.core.is_revoking(tp(1))
    group.complete(first)
    group.core.returned_records.abandon_all(group.now, [second])
    assert group.poll() is None  # the third one holds it
    group.rebalance()
    group.rejoin(0, 1)
    assert not group.core.is_revoking(tp(1))
    (again,) = read(group, 1)
    assert again.offset == 1, "the third one is still in flight, and not returned twice"
    assert group.complete(third)
    assert group.complete(again)
    assert group.respond_to_commit() == {tp(1): 1}
    group.advance(2)
    assert group.committing() == {tp(1): 3}


def test_a_withdrawn_revocation_without_abandoned_records_resumes_at_its_position() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.complete(first)
    assert group.poll() is None
    group.rebalance()
    group.rejoin(0, 1)
    group.produce(1)
    assert [record.offset for record in read(group, 1)] == [2]
    assert group.complete(second)


def test_a_resumed_partition_reads_again_what_was_abandoned_while_it_was_paused_alone() -> None:
    group = member()
    group.produce(0, 3)
    first, second, third = group.step().records
    group.core.seeking.pause(group.now, [tp(0)])
    group.complete(first)
    group.core.returned_records.abandon_all(group.now, [second])
    group.complete(third)
    group.produce(0)
    group.advance(1)
    assert group.poll() is None, "it is paused"
    group.core.seeking.resume(group.now, [tp(0)])
    assert [record.offset for record in read(group, 2)] == [1, 3]
    group.advance(2)
    assert group.poll() is None, "the third one is done"


def test_a_paused_partition_with_an_abandoned_record_is_released_with_what_is_done() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.core.seeking.pause(group.now, [tp(1)])
    group.complete(first)
    group.core.returned_records.abandon_all(group.now, [second])
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.poll() is None
    assert group.respond_to_commit()[tp(1)] == 1
    assert group.assigned == orders(0)


def resumed_with_a_record_in_flight() -> tuple[ScriptedGroup, Record]:
    """Of three records the first is done, the second was abandoned, and the third is in flight."""
    group = member()
    group.produce(0, 3)
    first, second, third = group.step().records
    group.core.seeking.pause(group.now, [tp(0)])
    group.complete(first)
    group.core.returned_records.abandon_all(group.now, [second])
    group.core.seeking.resume(group.now, [tp(0)])
    return group, third


def test_a_resumed_partition_does_not_return_a_record_in_flight_a_second_time() -> None:
    group, third = resumed_with_a_record_in_flight()
    (again,) = read(group, 1)
    assert again.offset == 1
    assert group.poll() is None, "the third one is still in flight"
    assert group.complete(third)
    assert group.complete(again)
    group.respond_to_commit()
    group.advance(2)
    assert group.committing() == {tp(0): 3}


def test_a_record_that_fails_after_a_resume_is_returned_after_the_next_one() -> None:
    group, third = resumed_with_a_record_in_flight()
    # Still in flight when the partition was resumed, so it is left out of what is read again.
    group.core.seeking.pause(group.now, [tp(0)])
    group.core.returned_records.abandon_all(group.now, [third])
    group.core.seeking.resume(group.now, [tp(0)])
    assert [record.offset for record in read(group, 2)] == [1, 2]


def test_a_record_that_reading_again_has_left_out_is_no_hole_if_it_fails_meanwhile() -> None:
    group = member()
    group.produce(0, 3)
    _first, second, third = group.step().records
    group.core.returned_records.abandon_all(group.now, [second])
    group.core.seeking.resume(group.now, [tp(0)])
    group.core.returned_records.abandon_all(group.now, [third])
    (again,) = read(group, 1)
    group.complete(again)
    tracker = group.core.assignment.live()[0].tracker
    assert tracker is not None
    assert tracker.has_abandoned
    assert list(tracker.completed_runs()) == [(1, 2)]
    group.core.seeking.resume(group.now, [tp(0)])
    assert [record.offset for record in read(group, 1)] == [2]


def test_a_pause_during_a_withdrawn_revocation_does_not_return_records_in_flight_again() -> None:
    group = member()
    group.produce(1, 3)
    first, second, third = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.complete(first)
    group.core.returned_records.abandon_all(group.now, [second])
    assert group.poll() is None
    group.core.seeking.pause(group.now, [tp(1)])
    group.rebalance()
    group.rejoin(0, 1)
    group.core.seeking.resume(group.now, [tp(1)])
    (again,) = read(group, 1)
    assert again.offset == 1
    assert again.tracker_id == third.tracker_id
    assert group.poll() is None, "the third one is still in flight"
    assert group.complete(third)
    assert group.complete(again)


@pytest.mark.parametrize("max_poll_records", [1, 500])
def test_records_read_again_in_batches_are_done_when_the_next_batch_is_asked_for(
    max_poll_records: int,
) -> None:
    group = after_a_task_group(max_poll_records)
    assert [record.offset for record in read(group, 3)] == [1, 2, 4]
    group.step()
    assert committed_at_last(group) == 5


def test_a_withdrawn_revocation_reads_the_last_record_again_if_it_was_abandoned() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.core.returned_records.abandon_all(group.now, [second])
    group.rebalance()
    group.rejoin(0, 1)
    group.produce(1)
    assert [record.offset for record in read(group, 2)] == [1, 2]
    assert group.complete(first)


@pytest.mark.parametrize("interruption", ["pause", "revocation of another partition"])
def test_a_reader_that_is_interrupted_returns_all_records_that_it_has_read_again(
    interruption: str,
) -> None:
    group = after_a_task_group()
    reader = SingleRecords(group)
    assert reader.take() == 1
    if interruption == "pause":
        group.core.seeking.pause(group.now, [tp(1)])
        group.core.seeking.resume(group.now, [tp(1)])
    else:
        group.rebalance()
        group.rejoin(1)
    assert [reader.take(), reader.take()] == [2, 4]
    reader.step()
    assert committed_at_last(group) == 5


def test_records_that_are_given_back_after_they_were_read_again_are_returned_later() -> None:
    group = member()
    group.produce(1, 4)
    first, second, third, fourth = group.step().records
    group.core.seeking.pause(group.now, [tp(1)])
    group.core.returned_records.abandon_all(group.now, [second, third])
    group.complete(fourth)
    group.core.seeking.resume(group.now, [tp(1)])
    assert [record.offset for record in read(group, 2)] == [1, 2]
    group.core.returned_records.drop_after(group.now, tp(1), 1)
    assert group.core.assignment.in_flight == 2
    (again,) = read(group, 1)
    assert again.offset == 2
    assert group.complete(first)
    assert group.complete(second)
    assert group.complete(again)
    assert committed_at_last(group) == 4


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_what_retention_has_deleted_is_not_read_again_and_the_rest_is_returned_once(
    policy: OffsetReset,
) -> None:
    group = with_deleted_records(2, policy)
    group.produce(1)
    assert [record.offset for record in read(group, 2)] == [3, 5]
    assert len(group.named("records to be read again are no longer in the log")) == 1
    assert not group.named("position is reset")


def test_if_the_position_was_deleted_with_the_records_to_be_read_again_it_is_reset() -> None:
    group = with_deleted_records(7, "earliest")
    assert [record.offset for record in read(group, 1)] == [7]
    assert len(group.named("position is reset")) == 1


def test_if_the_log_ends_before_the_records_to_be_read_again_the_position_is_reset() -> None:
    group = with_deleted_records(0, "earliest", log_end=0)
    group.advance(1)
    assert not group.named("records to be read again are no longer in the log")
    assert len(group.named("position is reset")) == 1
    assert group.core.seeking.position(tp(1)) == 0


def test_a_deleted_record_that_was_to_be_read_again_is_an_error_with_the_policy_error() -> None:
    group = with_deleted_records(2, "error")
    with pytest.raises(OffsetOutOfRangeError):
        read(group, 1)
