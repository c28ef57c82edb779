import random
import sys

import pytest
from unit.core.partition.tracked_records import dense, records

from asyncrevoke.client.core.partition.completion_map import CompletionMap
from asyncrevoke.client.core.partition.offset_flags import OffsetFlags
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker


def test_completing_several_counts_those_that_had_not_ended() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver(dense(10, 5), 15, 3)
    tracker.submit(11)
    tracker.complete(12)
    assert tracker.complete_all([11, 10, 12, 11, 99]) == 2
    assert (tracker.commit_point, tracker.in_flight, tracker.held) == (13, 2, 0)
    assert tracker.complete_all([]) == 0
    assert tracker.complete_all([14, 13]) == 2
    assert (tracker.commit_point, tracker.in_flight) == (15, 0)


def test_consecutive_records_complete_in_any_order() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver(dense(10, 10), 20, 3)
    assert tracker.complete_all([14, 13, 15]) == 3
    assert (tracker.commit_point, tracker.in_flight) == (10, 7)
    assert tracker.complete_all([12, 10, 11]) == 3
    assert (tracker.commit_point, tracker.in_flight) == (16, 4)
    tracker.submit(17)
    assert tracker.complete_all([16, 17, 18]) == 3
    assert (tracker.commit_point, tracker.in_flight, tracker.held) == (19, 1, 0)
    assert tracker.complete_all([19]) == 1
    assert (tracker.commit_point, tracker.in_flight) == (20, 0)


def test_repeated_offsets_complete_no_record_between_them() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver(dense(10, 5), 15, 3)
    assert tracker.complete_all([10, 10, 12]) == 2
    assert (tracker.commit_point, tracker.in_flight) == (11, 3)


def test_the_commit_point_is_the_first_record_not_done() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver(dense(10, 5), 15, 3)
    assert (tracker.commit_point, tracker.oldest, tracker.in_flight) == (10, 10, 5)
    tracker.complete(11)
    assert tracker.commit_point == 10
    tracker.complete(10)
    assert (tracker.commit_point, tracker.in_flight) == (12, 3)


def test_when_all_is_done_the_commit_point_lies_past_the_holes_at_the_end() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver(records(12, 14), 20, 3)
    assert tracker.commit_point == 12
    tracker.complete(12)
    assert tracker.commit_point == 14
    tracker.complete(14)
    assert (tracker.commit_point, tracker.oldest, tracker.in_flight) == (20, None, 0)


def test_an_empty_slice_moves_the_position_past_a_hole() -> None:
    tracker = OffsetTracker(1, 10)
    tracker.deliver([], 30, -1)
    assert (tracker.commit_point, tracker.position) == (30, 30)


def test_completing_twice_is_false_the_second_time() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 3), 3, 0)
    assert [tracker.complete(1), tracker.complete(1)] == [True, False]
    assert [tracker.complete(0), tracker.complete(0)] == [True, False]
    assert [tracker.complete(2), tracker.complete(2)] == [True, False]


@pytest.mark.parametrize("offset", [-1, 4, 6, 13, 14, 600])
def test_completing_what_was_never_delivered_is_a_key_error(offset: int) -> None:
    tracker = OffsetTracker(1, 5)
    tracker.deliver(records(5, 7, 500), 600, 0)
    with pytest.raises(KeyError):
        tracker.complete(offset)
    assert not tracker.submit(offset)


def test_a_held_record_is_not_settled() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 5), 5, 0)
    assert tracker.submit(2)
    assert not tracker.submit(2)
    tracker.complete_pending()
    assert (tracker.commit_point, tracker.in_flight, tracker.held) == (2, 1, 1)
    tracker.complete(2)
    assert (tracker.commit_point, tracker.in_flight, tracker.held) == (5, 0, 0)


def test_an_untracked_slice_is_pending_as_a_whole_until_it_is_settled() -> None:
    tracker = OffsetTracker(1, 100)
    tracker.deliver_untracked(50, 170, 4)
    tracker.deliver_untracked(5, 175, 4)
    assert (tracker.commit_point, tracker.in_flight, tracker.commit_epoch) == (100, 55, -1)
    tracker.complete_pending()
    assert (tracker.commit_point, tracker.in_flight, tracker.commit_epoch) == (175, 0, 4)


def test_an_untracked_slice_holds_the_commit_point_below_later_tracked_records() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver_untracked(10, 10, 0)
    tracker.deliver(dense(10, 2), 12, 0)
    tracker.complete(10)
    assert tracker.commit_point == 0
    tracker.submit(11)
    tracker.complete_pending()
    assert tracker.commit_point == 11


def test_the_commit_epoch_is_that_of_the_last_contiguous_done_record() -> None:
    tracker = OffsetTracker(1, 0, leader_epoch=2)
    tracker.deliver(dense(0, 2), 2, 5)
    tracker.deliver(dense(2, 2), 4, 7)
    assert tracker.commit_epoch == 2
    tracker.complete(2)
    assert tracker.commit_epoch == 2
    tracker.complete(0)
    assert tracker.commit_epoch == 5
    tracker.complete(1)
    assert tracker.commit_epoch == 7


def test_a_commit_point_behind_a_hole_is_of_the_epoch_that_may_have_written_the_hole() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 1), 1, 0)
    tracker.complete(0)
    # A leader of epoch 1 has written control records at 1 and 2: epoch 0 ends at 1, so 3 with it
    # would lie in a log that seems to have been cut.
    tracker.deliver(dense(3, 2), 5, 1)
    assert (tracker.commit_point, tracker.commit_epoch) == (3, 1)


def test_truncating_forgets_what_was_never_started() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 10), 10, 0)
    tracker.submit(0)
    tracker.submit(3)
    assert tracker.truncate(3) == 6
    assert (tracker.position, tracker.in_flight) == (4, 4)
    for offset in (0, 1, 2, 3):
        assert tracker.complete(offset)
    assert tracker.commit_point == 4


def test_truncating_never_takes_the_commit_point_back() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(records(0, 1, 10, 11), 12, 0)
    tracker.complete(0)
    tracker.complete(1)
    assert tracker.commit_point == 10
    assert tracker.truncate(1) == 2
    assert (tracker.commit_point, tracker.position) == (10, 10)


def test_truncating_keeps_a_record_that_was_started_and_reads_again_those_before_it() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 10), 10, 0)
    tracker.submit(5)
    assert tracker.truncate(2) == 6
    assert (tracker.position, tracker.in_flight_offsets()) == (6, [0, 1, 2, 5])
    assert tracker.read_again()[0] == 3
    tracker.deliver(records(3, 4), 6, 0)
    assert tracker.in_flight == 6


def test_what_was_truncated_can_be_delivered_again() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 10), 10, 0)
    tracker.truncate(4)
    tracker.deliver(dense(5, 5), 10, 1)
    for offset in range(10):
        assert tracker.complete(offset)
    assert (tracker.commit_point, tracker.commit_epoch) == (10, 1)


def test_truncating_an_untracked_slice_drops_only_whole_slices() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver_untracked(10, 10, 0)
    tracker.deliver_untracked(10, 20, 0)
    assert tracker.truncate(5) == 10
    assert (tracker.position, tracker.commit_point, tracker.in_flight) == (10, 0, 10)


def test_an_abandoned_record_is_not_in_flight_and_nothing_is_committed_past_it() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 4), 4, 0)
    tracker.submit(1)
    assert [tracker.abandon(1), tracker.abandon(1)] == [True, False]
    tracker.complete_pending()
    assert (tracker.in_flight, tracker.held, tracker.commit_point) == (0, 0, 1)
    assert not tracker.complete(1)
    assert tracker.commit_point == 1


def test_delivering_backwards_is_rejected() -> None:
    tracker = OffsetTracker(1, 10)
    with pytest.raises(ValueError, match="before 10"):
        tracker.deliver(dense(9, 2), 11, 0)


def test_what_a_former_owner_has_finished_is_joined_with_what_is_done() -> None:
    tracker = OffsetTracker(1, 10, 4, CompletionMap(((12, 14), (20, 30), (40, 45)), 6))
    assert not tracker.is_contiguous
    assert list(tracker.completed_runs()) == [(12, 14), (20, 30), (40, 45)]
    tracker.deliver(records(10, 11, 14, 15), 25, 5)
    tracker.complete(11)
    tracker.complete(15)
    assert list(tracker.completed_runs()) == [(11, 14), (15, 30), (40, 45)]
    assert tracker.leader_epoch == 6
    tracker.complete(10)
    tracker.complete(14)
    assert tracker.commit_point == 25
    assert list(tracker.completed_runs()) == [(25, 30), (40, 45)]


def test_nothing_is_finished_beyond_a_batch_that_is_pending_as_a_whole() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver_untracked(5, 5, 0)
    assert list(tracker.completed_runs()) == []


def test_what_is_done_beyond_an_offset_is_counted() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 50), 50, 0)
    for offset in range(10, 40):
        tracker.complete(offset)
    assert [tracker.count_done(offset) for offset in (0, 10, 20, 40)] == [30, 30, 20, 0]


def test_what_is_read_again_passes_over_what_is_done_or_in_flight() -> None:
    tracker = OffsetTracker(1, 10, 4, CompletionMap(((30, 40),), 4))
    tracker.deliver(dense(10, 10), 20, 5)
    tracker.submit(13)
    tracker.complete(15)
    for offset in (12, 14, 16):
        tracker.abandon(offset)
    offset, passed_over = tracker.read_again()
    assert passed_over is not None
    assert offset == 12
    assert passed_over.runs == ((13, 14), (15, 16), (17, 20), (30, 40))
    assert tracker.rereads


def test_a_record_that_the_log_has_lost_when_it_is_read_again_is_a_hole() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 6), 6, 0)
    tracker.complete_all([0, 4, 5])
    for offset in (1, 2, 3):
        tracker.abandon(offset)
    tracker.read_again()
    tracker.deliver(records(2), 3, 0)
    assert (tracker.commit_point, tracker.in_flight) == (2, 1)
    tracker.complete(2)
    assert tracker.commit_point == 3, "what follows has not been read again yet"
    tracker.deliver(records(8), 10, 0)
    assert not tracker.rereads
    assert (tracker.commit_point, tracker.in_flight) == (8, 1)


def bytes_of(tracker: OffsetTracker) -> int:
    return sum(
        sys.getsizeof(getattr(tracker, name))
        for name in (*OffsetTracker.__slots__, *OffsetFlags.__slots__)
        if name not in ("tracker_id", "position")
    )


@pytest.mark.parametrize(
    ("spacing", "allowed"),
    [(1, 1.2), (2, 2.4), (17, 19.2), (50, 19.2)],
)
def test_a_record_in_flight_costs_few_bytes(spacing: int, allowed: float) -> None:
    tracker = OffsetTracker(1, 0)
    before, count = bytes_of(tracker), 100_000
    for first in range(0, count, 500):
        part = records(*range(first * spacing, (first + 500) * spacing, spacing))
        tracker.deliver(part, (first + 500) * spacing, 0)
    assert tracker.in_flight == count
    assert (bytes_of(tracker) - before) / count <= allowed


def test_memory_is_given_back_while_one_old_record_is_replaced_by_younger_ones() -> None:
    tracker = OffsetTracker(1, 0)
    for first in range(0, 200_000, 500):
        tracker.deliver(dense(first, 500), first + 500, 0)
        for offset in range(max(first - 100, 0), first + 400):
            tracker.complete(offset)
    assert tracker.commit_point == 199_900
    assert bytes_of(tracker) < 20_000


def test_any_order_of_completion_ends_at_the_position() -> None:
    tracker = OffsetTracker(1, 0)
    order = [offset for offset in range(20_000) if offset % 3]
    tracker.deliver(records(*order), 20_100, 0)
    random.Random(5).shuffle(order)
    for offset in order:
        assert tracker.complete(offset)
    assert (tracker.commit_point, tracker.in_flight) == (20_100, 0)
