"""A task for each record of an application, up to three of a partition at once."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.deadline import time_for_running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from simulation.members.application_events import ApplicationEvents
    from simulation.members.consumer_style import WorkTime
    from simulation.members.lifespans import SimulatedLifespans
    from simulation.members.member import SimulatedMember
    from simulation.members.pending_calls import PendingCalls
    from simulation.transactions.member_transactions import MemberTransactions

    from asyncrevoke.client.core.io.effects import CompleteRequest
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Alarm


class RecordTasks:
    """Works on the records of one application; ``on_ended`` is called when a task has ended.

    ``acked``: the tasks are the user's own, so that the membership is not asked before they begin.
    """

    def __init__(
        self,
        member: SimulatedMember,
        events: ApplicationEvents,
        calls: PendingCalls,
        work_time: WorkTime,
        on_ended: Callable[[], None],
        *,
        acked: bool,
    ) -> None:
        # How many keys there are, of which one record each is worked on at once; 0: no order.
        self.keys = 0
        # Those of the partitions, if they have any.
        self.lifespans: SimulatedLifespans | None = None
        # Those that commit what it has done, if there are any.
        self.transactions: MemberTransactions | None = None
        self._member = member
        self._events = events
        self._calls = calls
        self._work_time = work_time
        self._on_ended = on_ended
        self._acked = acked
        self._rng = member.rng
        self._running: dict[tuple[TopicPartition, int], tuple[Record, Alarm]] = {}
        self._waiting: dict[TopicPartition, deque[Record]] = {}
        # The highest offset that was started, by tracker.
        self._started: dict[int, int] = {}
        self._busy: dict[TopicPartition, int] = {}
        self._waits_for_confirmation = False
        self._stopped = False

    def start(self, records: Iterable[Record], *, submit: bool) -> None:
        """Take records, which a task group submits first, and start what may run."""
        for record in records:
            if not submit or self._member.core.returned_records.submit(record):
                self._waiting.setdefault(record.topic_partition, deque()).append(record)
        for partition in list(self._waiting):
            self._fill(partition)

    def any(self) -> bool:
        """Whether a task runs or a record waits for one."""
        return bool(self._running) or any(self._waiting.values())

    def has(self, partition: TopicPartition) -> bool:
        """Whether a record of this partition runs or waits, or its lifespan begins or ends."""
        if self.lifespans is not None and self.lifespans.has(partition):
            return True
        if self.transactions is not None and self.transactions.has(partition):
            return True
        return bool(self._busy.get(partition) or self._waiting.get(partition))

    def unfinished(self) -> Iterator[Record]:
        """All records that wait or run, or that no committed transaction has."""
        if self.transactions is not None:
            yield from self.transactions.waiting()
        for records in self._waiting.values():
            yield from records
        for record, _ in self._running.values():
            yield record

    def running(self) -> Iterable[tuple[TopicPartition, int]]:
        """Partition and offset of each record that a task works on."""
        return self._running.keys()

    def waiting_partitions(self) -> list[TopicPartition]:
        """Partitions of which records have waited, in order."""
        return sorted(self._waiting)

    def abandon(self, partition: TopicPartition) -> None:
        """A partition is lost: cancel its tasks, whose records cannot count any more."""
        self._waiting.pop(partition, None)
        self._busy.pop(partition, None)
        for key in [key for key in self._running if key[0] == partition]:
            self._running.pop(key)[1].cancel()
        self._on_ended()

    def stop(self) -> None:
        """The iterator ends: no release waits for an acknowledgement of the user any more."""
        self._stopped = True

    def flush(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the transactions of what is done are committed, or take too long."""
        if self.transactions is None:
            then()
        else:
            self.transactions.flush(then)

    def end(self, then: Callable[[], None]) -> None:
        """Cancel all tasks, and end the open transaction; call ``then`` after that."""
        for _, alarm in self._running.values():
            alarm.cancel()
        if self.transactions is None:
            then()
        else:
            self.transactions.close(then)

    def _fill(self, partition: TopicPartition) -> None:
        waiting = self._waiting[partition]
        if waiting and not self.may_begin():
            self._begin_when_confirmed()
            return
        while self._busy.get(partition, 0) < 3:
            record = self._next_of(partition, waiting)
            if record is None:
                return
            waiting.remove(record)
            if not self._acked:
                self._events.began(self._member)
            highest = self._started.get(record.tracker_id, -1)
            self._started[record.tracker_id] = max(highest, record.offset)
            self._busy[partition] = self._busy.get(partition, 0) + 1
            key = (partition, record.offset)
            alarm = self._member.later(
                self._work_time.draw(self._rng), partial(self._task_ended, record)
            )
            self._running[key] = (record, alarm)

    def may_begin(self) -> bool:
        """Whether the membership is confirmed, which handlers, task groups and ``records()`` ask
        before a record begins; a user's own tasks do not."""
        now = self._member.now
        may = self._acked or self._member.core.session_guard.may_begin_until(now) >= now
        self._member.take_effects()
        return may

    def _begin_when_confirmed(self) -> None:
        if not self._waits_for_confirmation:
            self._waits_for_confirmation = True
            self._calls.await_confirmation(self._confirmed)

    def _confirmed(self, _complete: CompleteRequest) -> None:
        self._waits_for_confirmation = False
        for partition in list(self._waiting):
            self._fill(partition)
        self._member.take_effects()

    def _next_of(self, partition: TopicPartition, waiting: deque[Record]) -> Record | None:
        """The first record whose key is not worked on."""
        if not self.keys:
            return waiting[0] if waiting else None
        busy = {offset % self.keys for of, offset in self._running if of == partition}
        return next((each for each in waiting if each.offset % self.keys not in busy), None)

    def _task_ended(self, record: Record) -> None:
        partition = record.topic_partition
        if self._running.pop((partition, record.offset), None) is None:
            return  # cancelled while the loop was blocked
        self._busy[partition] -= 1
        if self.lifespans is not None:
            self.lifespans.handled(record)
        counts = True
        if self.transactions is not None:
            self.transactions.finished(record)
        else:
            counts = self._member.core.returned_records.complete(self._member.now, record)
        if self._acked and self._stopped and not counts:
            self._events.acknowledged_too_late(self._member, partition)
        self._events.done(self._member, record)
        if partition in self._waiting:
            self._fill(partition)
        self._member.take_effects()
        self._on_ended()

    def revocation_announced(self, partition: TopicPartition) -> None:
        """Drop what was not started; a gap that a lifespan needs, early enough before the deadline
        for the lifespan to exit."""
        self.drop_unstarted(partition)
        if self.lifespans is None or not self._waiting.get(partition):
            return
        seconds = self._member.core.revocation_ends_in(self._member.now, partition)
        if seconds is not None:
            left = max(0.0, seconds - time_for_running(seconds))
            self._member.later(left, partial(self._drop_gap, partition))

    def _drop_gap(self, partition: TopicPartition) -> None:
        if self._member.core.is_revoking(partition) and self._waiting.get(partition):
            self._events.gap_dropped(self._member, partition)
            self.drop_unstarted(partition, all_gaps=True)
            self._member.take_effects()

    def drop_unstarted(self, partition: TopicPartition, *, all_gaps: bool = False) -> None:
        """Drop what was not started, and gaps too if the next owner can know of them."""
        waiting = self._waiting.get(partition)
        if not waiting:
            return
        core, now = self._member.core, self._member.now
        started = self._started.get(waiting[-1].tracker_id, -1)
        droppable_from = core.returned_records.droppable_from(partition, list(waiting))
        first = 0 if all_gaps else droppable_from
        gaps = [each for each in waiting if first <= each.offset < started]
        rest = [each.offset for each in waiting if each.offset > started]
        self._waiting[partition] = deque(
            each for each in waiting if each.offset < min(first, started)
        )
        offset = min(rest) - 1 if rest else started
        if gaps or rest:
            found = frozenset(gap.offset for gap in gaps)
            self._events.dropped(self._member, partition, offset, found)
        if rest:
            core.returned_records.drop_after(now, partition, offset)
        if gaps:
            core.returned_records.abandon_all(now, gaps)
