import itertools
import random
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrevoke.core.partition.completion_map import CompletionMap
from asyncrevoke.core.partition.offset_flags import OffsetFlags
from asyncrevoke.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable


def record(offset: int) -> Record:
    return Record("orders", 0, offset, 0, 0, None, None)


def records(*offsets: int) -> list[Record]:
    return [record(offset) for offset in offsets]


# What may have become of a record.
FATES = ("done", "running", "dropped")


def dense(first: int, count: int) -> list[Record]:
    return records(*range(first, first + count))


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


def test_truncating_keeps_a_record_that_was_started() -> None:
    tracker = OffsetTracker(1, 0)
    tracker.deliver(dense(0, 10), 10, 0)
    tracker.submit(5)
    assert tracker.truncate(2) == 4
    assert (tracker.position, tracker.in_flight) == (6, 6)


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


def test_delivering_backwards_is_refused() -> None:
    tracker = OffsetTracker(1, 10)
    with pytest.raises(ValueError, match="before 10"):
        tracker.deliver(dense(9, 2), 11, 0)


class NaiveLedger:
    """The same, with a dict and no thought of speed."""

    def __init__(self, position: int) -> None:
        self.first = self.position = position
        self.epoch = -1
        self.state: dict[int, str] = {}
        self.epochs: dict[int, int] = {}
        self.abandoned: list[int] = []

    @property
    def open(self) -> list[int]:
        return sorted(offset for offset, state in self.state.items() if state != "done")

    @property
    def commit_point(self) -> int:
        return min([*self.open, *self.abandoned], default=self.position)

    def finished(self) -> set[int]:
        """Every offset from the commit point to the position at which nothing is to be done."""
        left = {*self.open, *self.abandoned}
        return {at for at in range(self.commit_point, self.position) if at not in left}

    @property
    def commit_epoch(self) -> int:
        before = [offset for offset in self.epochs if offset < self.commit_point]
        return self.epochs[max(before)] if before else -1

    def deliver(self, offsets: list[int], position: int, epoch: int) -> None:
        if offsets or position > self.position:
            self.epochs[self.position] = epoch
        for offset in offsets:
            self.state[offset] = "pending"
            self.epochs[offset] = epoch
        self.position = position

    def submit(self, offset: int) -> bool:
        if self.state.get(offset) != "pending":
            return False
        self.state[offset] = "held"
        return True

    def complete(self, offset: int) -> bool | None:
        """None where the tracker raises."""
        if self.first <= offset < self.commit_point:
            return False
        if offset not in self.state:
            return None
        done = self.state[offset] == "done"
        self.state[offset] = "done"
        return not done

    def abandon(self, offset: int) -> bool | None:
        ended = self.complete(offset)
        if ended:
            self.abandoned.append(offset)
        return ended

    def settle(self) -> None:
        for offset, state in self.state.items():
            if state == "pending":
                self.state[offset] = "done"

    def truncate(self, offset: int) -> int:
        started = [at for at, state in self.state.items() if state != "pending"]
        keep = max([offset, *started])
        drop = sorted(at for at in self.state if at > keep)
        if drop:
            self.position = drop[0]
        for at in drop:
            del self.state[at]
        self.epochs = {at: epoch for at, epoch in self.epochs.items() if at < self.position}
        return len(drop)

    def split_at(self, offset: int, epoch: int) -> list[int]:
        """Returns the records in flight that are lost."""
        lost = [at for at in self.open if at >= offset]
        self.state = {at: state for at, state in self.state.items() if at < offset}
        self.abandoned = [at for at in self.abandoned if at < offset]
        self.epochs = {at: min(each, epoch) for at, each in self.epochs.items() if at < offset}
        self.position = min(self.position, offset)
        return lost


class Call(NamedTuple):
    name: str
    number: int = 0
    gaps: tuple[int, ...] = ()


gaps = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 3, 15, 16, 17, 40, 100_000])
calls = st.one_of(
    st.builds(Call, st.just("deliver"), st.integers(0, 3), st.lists(gaps, max_size=12).map(tuple)),
    st.builds(
        Call,
        st.sampled_from(["complete", "complete", "submit", "abandon", "truncate"]),
        st.integers(0, 60),
    ),
    st.builds(Call, st.just("settle")),
    st.builds(Call, st.just("split_at"), st.integers(1, 60)),
    st.builds(Call, st.just("complete_all"), st.integers(0, 60), st.lists(gaps).map(tuple)),
    st.builds(Call, st.just("miss"), st.integers(0, 300)),
)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 20), st.lists(calls, max_size=60), st.sampled_from([0, 3, 4096]))
def test_it_agrees_with_a_naive_model(start: int, steps: list[Call], compact: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asyncrevoke.core.partition.offset_tracker._COMPACT_BEYOND", compact)
        tracker, model = OffsetTracker(7, start), NaiveLedger(start)
        for step in steps:
            delivered = sorted(model.state)
            if step.name == "deliver":
                offsets: list[int] = []
                at = model.position
                for gap in step.gaps:
                    offsets.append(at + gap)
                    at = offsets[-1] + 1
                position = at + step.number * 7
                tracker.deliver([record(offset) for offset in offsets], position, step.number)
                model.deliver(offsets, position, step.number)
            elif step.name == "complete_all":
                several = [step.number, *itertools.accumulate(step.gaps, initial=step.number)]
                expected = sum(model.complete(offset) or False for offset in several)
                assert tracker.complete_all(several) == expected, several
            elif step.name == "split_at":
                offset = model.commit_point + step.number
                former_id = tracker.tracker_id
                lost = tracker.split_at(offset, 2, former_id + 1)
                in_flight = model.split_at(offset, 2)
                assert (lost.tracker_id, tracker.tracker_id) == (former_id, former_id + 1)
                assert lost.in_flight_offsets() == in_flight
                assert lost.in_flight == len(in_flight)
                assert lost.complete_all(in_flight) == len(in_flight)
                assert not lost.in_flight
            elif step.name == "settle":
                tracker.complete_pending()
                model.settle()
            else:
                offset, name = step.number, step.name
                if name == "miss":
                    name = "complete"
                elif delivered:
                    offset = delivered[offset % len(delivered)]
                expected = getattr(model, name)(offset)
                call: Callable[[int], object] = getattr(tracker, name)
                if expected is None:
                    with pytest.raises(KeyError):
                        call(offset)
                else:
                    assert call(offset) == expected, (name, offset)
            assert tracker.commit_point == model.commit_point
            assert tracker.position == model.position
            assert tracker.in_flight == len(model.open)
            assert tracker.commit_epoch == model.commit_epoch
            runs = list(tracker.completed_runs())
            assert all(run[1] < following[0] for run, following in pairwise(runs))
            if model.position - model.commit_point < 2000:
                assert {at for run in runs for at in range(*run)} == model.finished()


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


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_was_abandoned_and_is_read_again_ends_like_all_else(data: st.DataObject) -> None:
    spacing = data.draw(st.sampled_from([1, 3, 40]))
    offsets = [spacing * index for index in range(data.draw(st.integers(1, 30)))]
    end = offsets[-1] + 1
    tracker = OffsetTracker(1, 0)
    tracker.deliver(records(*offsets), end, 0)
    fates = {offset: data.draw(st.sampled_from(FATES)) for offset in offsets}
    for _ in range(data.draw(st.integers(1, 3))):
        for offset, fate in fates.items():
            if fate == "done":
                tracker.complete(offset)
            elif fate == "dropped":
                tracker.abandon(offset)
        dropped = [offset for offset, fate in fates.items() if fate == "dropped"]
        if not dropped:
            break
        first, passed_over = tracker.read_again()
        assert first == dropped[0]
        skipped = {at for run in passed_over.runs for at in range(*run)}
        assert not skipped.intersection(dropped)
        assert {o for o in offsets if o > first and fates[o] != "dropped"} <= skipped
        gone = {offset for offset in dropped if data.draw(st.booleans())}
        left = [offset for offset in dropped if offset not in gone]
        while left:
            count = data.draw(st.integers(1, len(left)))
            taken, left = left[:count], left[count:]
            tracker.deliver(records(*taken), taken[-1] + 1, 0)
        tracker.deliver([], end, 0)
        assert not tracker.rereads
        for offset in dropped:
            fates[offset] = "gone" if offset in gone else "running"
        running = [offset for offset, fate in fates.items() if fate == "running"]
        assert tracker.in_flight == len(running)
        assert tracker.in_flight_offsets() == running
        assert tracker.commit_point == min(running, default=end)
        for offset in running:
            fates[offset] = data.draw(st.sampled_from(FATES))
    for offset in tracker.in_flight_offsets():
        tracker.complete(offset)
    assert tracker.in_flight == 0


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
