"""Batches, single records and tasks in any order, with seeks and pauses between them.

A model says which record is next of each partition, and what counts: each is delivered once and in
order, nothing else is committed, and all of it in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.protocol.messages import ErrorCode, OffsetCommitRequest
from asyncrevoke.client.runtime.session.membership_guard import NoMembership
from asyncrevoke.client.runtime.session.record_iterator import RecordIterator

if TYPE_CHECKING:
    from asyncrevoke.client.config import CommitMode
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.model import PollResult, Record
    from asyncrevoke.client.runtime.session.session import Session

PARTITIONS: Final[tuple[int, ...]] = (0, 1, 2)
INTERVAL: Final = 1.0


class NothingYetError(Exception):
    """The step would wait."""


class Steps:
    """Steps of a scripted group for a record iterator; a wait is cancelled at once."""

    def __init__(self, group: ScriptedGroup) -> None:
        self._group = group

    async def poll(self, reader: RecordReader) -> PollResult:
        group = self._group
        result = group.core.poll(group.now, reader=reader)
        if result is None:
            group.core.poller.interrupt(group.now)
        group.run_until_idle()
        if result is None:
            raise NothingYetError
        return result


class Loop:
    """A user, what it has done, and what must be true therefore."""

    def __init__(self, mode: CommitMode) -> None:
        self.mode: CommitMode = mode
        self.group = ScriptedGroup(
            commit_mode=mode, commit_interval=INTERVAL, max_in_flight=50, max_poll_records=7
        )
        self.group.become_member(*PARTITIONS)
        self.group.pulse = ErrorCode.none
        self.reader = RecordIterator(cast("Session", Steps(self.group)), NoMembership())
        self.produced: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self.following: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self.sought: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self.done: dict[int, set[int]] = {number: set() for number in PARTITIONS}
        # By hand: what a commit was asked for.
        self.wanted: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self.paused: set[int] = set()
        # What was returned last: it counts when the next is asked for.
        self.current: list[Record] = []
        # What was returned and waits for its task, or for its ack.
        self.tasks: list[Record] = []
        self.unacknowledged: list[Record] = []
        self.in_tasks = False

    # --- what the user does ----------------------------------------------------------------------

    def produce(self, number: int, records: int) -> None:
        self.group.produce(number, records)
        self.produced[number] += records
        self.group.advance(0.6)  # a fetch for other partitions may wait for half a second

    def batch(self, max_records: int | None) -> None:
        self._asks()
        result = self.group.core.poll(self.group.now, max_records, expired=True)
        self.group.run_until_idle()
        assert result is not None
        assert len(result.records) <= (max_records or 7)
        self._takes(list(result.records))

    def record(self) -> None:
        self._asks()
        asking = self.reader.__anext__()
        try:
            asking.send(None)
        except StopIteration as returned:
            self._takes([returned.value])
        except NothingYetError:
            self._takes([])

    def submit(self) -> None:
        if not self.in_tasks:
            self.in_tasks = True
            self.group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
        record = self.current.pop()
        assert self.group.core.returned_records.submit(record)
        self.tasks.append(record)

    def end_task(self, which: int) -> None:
        record = self.tasks.pop(which % len(self.tasks))
        self.group.complete(record)
        self._counts(record)

    def ack(self, which: int) -> None:
        record = self.unacknowledged.pop(which % len(self.unacknowledged))
        assert self.group.complete(record)
        self._counts(record)

    def seek(self, number: int, offset: int) -> None:
        self.group.core.seek(self.group.now, tp(number), offset)
        self.group.run_until_idle()
        self.following[number] = self.sought[number] = offset
        self.done[number] = set()
        self.group.advance(0.6)

    def pause(self, number: int) -> None:
        self.paused.add(number)
        self.group.core.seeking.pause(self.group.now, [tp(number)])
        self.group.run_until_idle()

    def resume(self, number: int) -> None:
        self.paused.discard(number)
        self.group.core.seeking.resume(self.group.now, [tp(number)])
        self.group.advance(0.6)

    def commit(self) -> None:
        self.wanted = dict(self.following)
        self.group.core.commit(self.group.now)
        self.group.run_until_idle()
        self.respond_to_commits()

    def respond_to_commits(self) -> None:
        while sends := self.group.sends(OffsetCommitRequest):
            self.group.respond_to_commit(send=sends[0])

    # --- what must be true -----------------------------------------------------------------------

    def _asks(self) -> None:
        if self.mode == "processed":
            for record in self.current:
                self._counts(record)
        self.current = []

    def _counts(self, record: Record) -> None:
        if record.tracker_id == self._tracker_id(record.partition):
            self.done[record.partition].add(record.offset)

    def _tracker_id(self, number: int) -> int:
        instance = self.group.core.assignment.get(tp(number))
        assert instance is not None
        assert instance.tracker is not None
        return instance.tracker.tracker_id

    def _takes(self, records: list[Record]) -> None:
        for record in records:
            number = record.partition
            assert number not in self.paused
            assert record.offset == self.following[number]
            self.following[number] += 1
        self.current = records
        if self.mode == "ack":
            self.unacknowledged += records

    def point(self, number: int) -> int:
        if self.mode == "manual":
            return self.wanted[number]
        point = self.sought[number]
        while point in self.done[number]:
            point += 1
        return point

    def check(self) -> None:
        for number in PARTITIONS:
            assert self.group.core.position(tp(number)) == self.following[number]

    def check_commits(self) -> None:
        for _ in range(3):
            self.group.advance(INTERVAL + 0.1)
            self.respond_to_commits()
        committed = {number: self.group.committed.get(tp(number), 0) for number in PARTITIONS}
        assert committed == {number: self.point(number) for number in PARTITIONS}

    def finish(self) -> None:
        """All that is left is delivered, and all that counts is committed."""
        for number in sorted(self.paused):
            self.resume(number)
        for _ in range(100):
            while self.unacknowledged:
                self.ack(0)
            while self.tasks:
                self.end_task(0)
            if self.following == self.produced:
                break
            self.record()
            self.batch(None)
        assert self.following == self.produced
        self.record()
        if self.mode == "manual":
            self.commit()
        self.check_commits()


@pytest.mark.parametrize("mode", ["processed", "ack", "manual"])
@settings(max_examples=40)
@given(st.data())
def test_any_change_of_style_delivers_each_record_once_and_commits_what_counts(
    mode: CommitMode, data: st.DataObject
) -> None:
    loop = Loop(mode)
    for number in PARTITIONS:
        loop.produce(number, data.draw(st.integers(0, 12)))
    numbers, any_index = st.sampled_from(PARTITIONS), st.integers(0, 50)
    for _ in range(data.draw(st.integers(1, 30))):
        actions = ["batch", "record", "records", "seek", "pause", "resume", "produce", "wait"]
        actions += ["check"]
        if mode == "manual":
            actions.append("commit")
        if mode == "processed" and loop.current:
            actions.append("submit")
        if loop.tasks:
            actions.append("end task")
        if loop.unacknowledged:
            actions.append("ack")
        match data.draw(st.sampled_from(actions)):
            case "batch":
                loop.batch(data.draw(st.sampled_from((None, 1, 3))))
            case "record":
                loop.record()
            case "records":
                for _ in range(data.draw(st.integers(2, 9))):
                    loop.record()
            case "seek":
                number = data.draw(numbers)
                loop.seek(number, data.draw(st.integers(0, loop.produced[number])))
            case "pause":
                loop.pause(data.draw(numbers))
            case "resume":
                loop.resume(data.draw(numbers))
            case "produce":
                loop.produce(data.draw(numbers), data.draw(st.integers(1, 8)))
            case "wait":
                loop.group.advance(data.draw(st.sampled_from((0.1, 1.5))))
                loop.respond_to_commits()
            case "commit":
                loop.commit()
            case "submit":
                loop.submit()
            case "end task":
                loop.end_task(data.draw(any_index))
            case "ack":
                loop.ack(data.draw(any_index))
            case _:
                loop.check_commits()
        loop.check()
    loop.finish()
