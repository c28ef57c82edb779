"""The offset tracker agrees with a naive model, whatever is done to it."""

import itertools
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.partition.tracked_records import record, records

from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker

if TYPE_CHECKING:
    from collections.abc import Callable


# What may have become of a record.
FATES = ("done", "running", "dropped")


class NaiveTracker:
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

    def complete_pending(self) -> None:
        for offset, state in self.state.items():
            if state == "pending":
                self.state[offset] = "done"

    def truncate(self, offset: int) -> int:
        started = [at for at, state in self.state.items() if state != "pending"]
        keep = max([offset, *started])
        drop = sorted(at for at in self.state if at > keep)
        below = [at for at in self.state if offset < at < keep]
        below = [at for at in below if self.state[at] == "pending"]
        for at in below:
            self.abandon(at)
        if drop:
            self.position = drop[0]
        for at in drop:
            del self.state[at]
        self.epochs = {at: epoch for at, epoch in self.epochs.items() if at < self.position}
        return len(drop) + len(below)

    def read_again(self) -> list[int]:
        """Returns the records that are pending again."""
        again, self.abandoned = sorted(self.abandoned), []
        self.state |= dict.fromkeys(again, "pending")
        return again

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
    st.builds(Call, st.just("complete_pending")),
    st.builds(Call, st.just("split_at"), st.integers(1, 60)),
    st.builds(Call, st.just("complete_all"), st.integers(0, 60), st.lists(gaps).map(tuple)),
    st.builds(Call, st.just("miss"), st.integers(0, 300)),
)


@settings(max_examples=400)
@given(st.integers(0, 20), st.lists(calls, max_size=60), st.sampled_from([0, 3, 4096]))
def test_it_agrees_with_a_naive_model(start: int, steps: list[Call], compact: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asyncrevoke.client.core.partition.offset_tracker._COMPACT_BEYOND", compact)
        tracker, model = OffsetTracker(7, start), NaiveTracker(start)
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
            elif step.name == "complete_pending":
                tracker.complete_pending()
                model.complete_pending()
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
                if tracker.rereads:
                    tracker.read_again()
                    again = [record(each) for each in model.read_again()]
                    tracker.deliver(again, tracker.position, 0)
            assert tracker.commit_point == model.commit_point
            assert tracker.position == model.position
            assert tracker.in_flight == len(model.open)
            assert tracker.commit_epoch == model.commit_epoch
            runs = list(tracker.completed_runs())
            assert all(run[1] < following[0] for run, following in pairwise(runs))
            if model.position - model.commit_point < 2000:
                assert {at for run in runs for at in range(*run)} == model.finished()


@settings(max_examples=200)
@given(st.data())
def test_what_was_abandoned_and_is_read_again_ends_like_all_else(data: st.DataObject) -> None:
    spacing = data.draw(st.sampled_from([1, 3, 40]))
    offsets = [spacing * index for index in range(data.draw(st.integers(1, 30)))]
    end = offsets[-1] + 1
    tracker = OffsetTracker(1, 0)
    tracker.deliver(records(*offsets), end, 0)
    states = {offset: data.draw(st.sampled_from(FATES)) for offset in offsets}
    for _ in range(data.draw(st.integers(1, 3))):
        for offset, state in states.items():
            if state == "done":
                tracker.complete(offset)
            elif state == "dropped":
                tracker.abandon(offset)
        dropped = [offset for offset, state in states.items() if state == "dropped"]
        if not dropped:
            break
        first, passed_over = tracker.read_again()
        assert first == dropped[0]
        runs = () if passed_over is None else passed_over.runs
        skipped = {at for run in runs for at in range(*run)}
        assert not skipped.intersection(dropped)
        assert {o for o in offsets if o > first and states[o] != "dropped"} <= skipped
        gone = {offset for offset in dropped if data.draw(st.booleans())}
        left = [offset for offset in dropped if offset not in gone]
        while left:
            count = data.draw(st.integers(1, len(left)))
            taken, left = left[:count], left[count:]
            tracker.deliver(records(*taken), taken[-1] + 1, 0)
        tracker.deliver([], end, 0)
        assert not tracker.rereads
        for offset in dropped:
            states[offset] = "gone" if offset in gone else "running"
        running = [offset for offset, state in states.items() if state == "running"]
        assert tracker.in_flight == len(running)
        assert tracker.in_flight_offsets() == running
        assert tracker.commit_point == min(running, default=end)
        for offset in running:
            states[offset] = data.draw(st.sampled_from(FATES))
    for offset in tracker.in_flight_offsets():
        tracker.complete(offset)
    assert tracker.in_flight == 0
