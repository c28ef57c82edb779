"""Applications: how users drive a consumer, in each of the shapes that the library offers.

* ``LOOP``: works through each batch, then asks for the next (``commit_mode="processed"``).
* ``TASKS``: a handler per record, some slow, and some members run one at a time of each key; on a
  revoke what was not started is dropped, gaps too if the next owner can know of them.
* ``GROUP``: like it, but everything that was delivered is finished (a task group).
* ``ACK``: tasks of the user, who delays revokes by hand (``commit_mode="ack"``,
  ``auto_delay=False``).
* ``MANUAL``: commits each batch before asking for the next (``commit_mode="manual"``).
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.errors import FatalError, PartitionLostError, PartitionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.core.effects import Complete
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.testing.simulation.clock import Alarm
    from asyncrevoke.testing.simulation.member import Member


class Shape(enum.Enum):
    """How an application uses its consumer."""

    LOOP = "loop"
    TASKS = "tasks"
    GROUP = "group"
    ACK = "ack"
    MANUAL = "manual"

    @property
    def tracked(self) -> bool:
        """Whether records are done one by one."""
        return self in (Shape.TASKS, Shape.GROUP, Shape.ACK)


OPTIONS: Mapping[Shape, Mapping[str, object]] = {
    Shape.LOOP: {},
    Shape.TASKS: {},
    Shape.GROUP: {},
    Shape.ACK: {"commit_mode": "ack", "auto_delay": False},
    Shape.MANUAL: {"commit_mode": "manual"},
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How long work takes, in seconds: up to ``usual``, or up to ``slow`` in ``slow_share`` of
    cases."""

    usual: float = 0.03
    slow: float = 1.0
    slow_share: float = 0.03


class Witness:
    """Sees what the application experiences; the oracles are one."""

    def asked(self, member: Member) -> None:
        """A step begins: the last batch counts."""

    def polled_in_vain(self, member: Member) -> None:
        """A poll has returned nothing: the step goes on."""

    def returned(self, member: Member, result: PollResult) -> None:
        """The step has returned this."""

    def subscribed(self, member: Member) -> None:
        """It has subscribed to other topics."""

    def delayed(self, member: Member, wanted: frozenset[TopicPartition], ours: bool) -> None:
        """``delay_revoke(wanted)`` has returned ``ours``."""

    def dropped(
        self, member: Member, partition: TopicPartition, offset: int, gaps: frozenset[int]
    ) -> None:
        """Records after ``offset``, and ``gaps`` before it, were given up unstarted."""

    def done(self, member: Member, record: Record) -> None:
        """The application has worked on a record, whatever the library then makes of it."""

    def failed(self, member: Member, error: Exception) -> None:
        """A step, or a request of the application, has raised this."""

    def closing(self, member: Member) -> None:
        """The application is about to close its consumer."""

    def left_uncounted(self, member: Member) -> None:
        """The application left the loop with work that does not count: it will come again."""

    def closed(self, member: Member) -> None:
        """The consumer has closed."""


class Application:
    """One application; ``start`` begins to poll. The member's events call back into it."""

    def __init__(self, member: Member, shape: Shape, pace: Pace, witness: Witness) -> None:
        self.member = member
        self.shape = shape
        self.parked = False
        self.closing = False
        self.pace = pace
        self.ending = False
        self._draining = False
        self._delayed: frozenset[TopicPartition] = frozenset()
        self.on_closed: Callable[[], None] = lambda: None
        # Whether tasks of the user are waited for before closing, which does not wait for them.
        self.patient = False
        # How many keys there are, of which one record each is worked on at once; 0: no order.
        self.keys = 0
        self.paused_until = 0.0
        self._witness = witness
        self._rng = member.rng
        self._returned = False
        self._batch: list[Record] = []
        self._uncounted = False
        self._body: Alarm | None = None
        self._running: dict[tuple[TopicPartition, int], tuple[Record, Alarm]] = {}
        self._waiting: dict[TopicPartition, deque[Record]] = {}
        # The highest offset that was started, by ledger.
        self._started: dict[int, int] = {}
        self._busy: dict[TopicPartition, int] = {}
        self._next_step: Alarm | None = None
        self._tickets: dict[int, Callable[[Complete], None]] = {}
        member.wake = self._woken
        member.completed = self._completed
        if shape.tracked:
            member.core.track(True, settle=shape is Shape.GROUP)

    # --- steps -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to poll."""
        self._returned = True
        self.ask()

    def ask(self) -> None:
        """Ask for the next batch: the last one counts from now on."""
        self._next_step = None
        if self.closing or self.parked:
            return
        if self._returned:
            self._returned = False
            self._uncounted = False
            self._witness.asked(self.member)
        self.parked = True
        self._poll()

    def _woken(self) -> None:
        if self.parked:
            self._poll()

    def _poll(self, *, expired: bool = False) -> None:
        core = self.member.core
        try:
            result = core.poll(self.member.now, expired=expired)
        except PartitionsError as error:
            self._witness.failed(self.member, error)
            self.member.take_effects()
            self._step_again(0.01)
            return
        except FatalError as error:
            self.parked = False
            self._witness.failed(self.member, error)
            self.member.take_effects()
            self._close_consumer()
            return
        self.member.take_effects()
        if result is not None:
            self.parked = False
            self._returned = True
            self._witness.returned(self.member, result)
            self._work(result)
        elif core.ended and not self.closing:
            self.parked = False
            self._close()
        else:
            self._witness.polled_in_vain(self.member)

    def _step_again(self, seconds: float) -> None:
        self.parked = False
        self._next_step = self.member.later(seconds, self.ask)

    def cancel_step(self, seconds: float) -> None:
        """Cancel a parked step, and take it up again later."""
        if self.parked:
            self.member.core.interrupt(self.member.now)
            self.member.take_effects()
            self._step_again(seconds)

    def expire_step(self) -> None:
        """The timeout of a parked ``poll(timeout)`` is over."""
        if self.parked:
            self._poll(expired=True)

    def leave_loop(self, seconds: float) -> None:
        """Stay away from the iterator for a while after the current batch."""
        self.paused_until = self.member.now + seconds

    # --- work ------------------------------------------------------------------------------------

    def _work(self, result: PollResult) -> None:
        for partition in result.lost:
            self._abandon(partition)
        if self.shape.tracked:
            self._start_tasks(result)
        elif result.records:
            self._batch = list(result.records)
            seconds = sum(self._duration() / 4 for _ in self._batch[:8])
            self._body = self.member.later(seconds, self._body_ended)
        else:
            self._next(0.001)

    def _duration(self) -> float:
        draw = self._rng.random()
        longest = self.pace.slow if draw < self.pace.slow_share else self.pace.usual
        return 0.001 + self._rng.random() * longest

    def _next(self, seconds: float) -> None:
        away = self.paused_until - self.member.now
        self._next_step = self.member.later(max(seconds, away), self.ask)

    def _body_ended(self) -> None:
        if self._body is None:
            return  # cancelled while the loop was blocked
        self._body = None
        for record in self._batch:
            self._witness.done(self.member, record)
        self._batch = []
        self._uncounted = True
        if self.shape is Shape.MANUAL:
            self._commit(self._manual_committed)
        else:
            self._next(0.0)

    def _manual_committed(self, complete: Complete) -> None:
        if complete.error is not None and not isinstance(complete.error, PartitionLostError):
            self._witness.failed(self.member, complete.error)
        if not self.closing:
            self._next(0.0)

    def _start_tasks(self, result: PollResult) -> None:
        self._delayed = frozenset()
        for record in result.records:
            if self.shape is not Shape.GROUP or self.member.core.submit(record):
                self._waiting.setdefault(record.topic_partition, deque()).append(record)
        for partition in list(self._waiting):
            self._fill(partition)
        if self.shape is Shape.TASKS:
            for partition in sorted(result.to_be_revoked):
                self._drop(partition)
        elif self.shape is Shape.ACK and self._delay(result.to_be_revoked):
            self._next(self._linger(result.to_be_revoked))
            return
        self.member.take_effects()
        self._next(0.0)

    def _linger(self, announced: frozenset[TopicPartition]) -> float:
        """Come round at once, or a little later, after having renewed the delay meanwhile."""
        pause = self._rng.random() * 0.4 if self._rng.random() < 0.3 else 0.0
        if pause:
            self.member.later(pause / 2, partial(self._renew, announced))
        return pause

    def _renew(self, announced: frozenset[TopicPartition]) -> None:
        self._delay(announced)

    def _delay(self, announced: frozenset[TopicPartition]) -> bool:
        busy = frozenset(tp for tp in announced if self._busy.get(tp) or self._waiting.get(tp))
        if busy and not self.closing:
            ours = self.member.core.delay_revoke(busy)
            self.member.take_effects()
            self._witness.delayed(self.member, busy, ours)
            # What was delayed before stays so until it is listed again.
            self._delayed |= busy
        return bool(busy)

    def _fill(self, partition: TopicPartition) -> None:
        waiting = self._waiting[partition]
        while self._busy.get(partition, 0) < 3:
            record = self._next_of(partition, waiting)
            if record is None:
                return
            waiting.remove(record)
            highest = self._started.get(record.ledger_id, -1)
            self._started[record.ledger_id] = max(highest, record.offset)
            self._busy[partition] = self._busy.get(partition, 0) + 1
            key = (partition, record.offset)
            alarm = self.member.later(self._duration(), partial(self._task_ended, record))
            self._running[key] = (record, alarm)

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
        self._witness.done(self.member, record)
        self.member.core.complete(self.member.now, record)
        if partition in self._waiting:
            self._fill(partition)
        self.member.take_effects()
        self._maybe_drained()

    def _drop(self, partition: TopicPartition) -> None:
        waiting = self._waiting.get(partition)
        if not waiting:
            return
        core, now = self.member.core, self.member.now
        started = self._started.get(waiting[-1].ledger_id, -1)
        first = core.droppable_from(partition, list(waiting))
        gaps = [each for each in waiting if first <= each.offset < started]
        rest = [each.offset for each in waiting if each.offset > started]
        self._waiting[partition] = deque(
            each for each in waiting if each.offset < min(first, started)
        )
        offset = min(rest) - 1 if rest else started
        if gaps or rest:
            found = frozenset(each.offset for each in gaps)
            self._witness.dropped(self.member, partition, offset, found)
        if rest:
            core.drop_after(now, partition, offset)
        if gaps:
            core.abandon_all(now, gaps)

    def _abandon(self, partition: TopicPartition) -> None:
        """A partition is lost: its tasks are cancelled, what is done cannot count any more."""
        self._waiting.pop(partition, None)
        self._busy.pop(partition, None)
        for key in [key for key in self._running if key[0] == partition]:
            self._running.pop(key)[1].cancel()
        self._maybe_drained()

    # --- requests --------------------------------------------------------------------------------

    def commit(self) -> None:
        """Flush what counts."""
        # In manual mode this would commit the batch that is being worked on.
        if not self.closing and self.shape is not Shape.MANUAL:
            self._commit(lambda complete: self._flushed(complete.error))

    def _flushed(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, PartitionsError):
            self._witness.failed(self.member, error)

    def _commit(self, then: Callable[[Complete], None]) -> None:
        ticket = self.member.core.commit(self.member.now)
        self._tickets[ticket] = then
        self.member.take_effects()

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics."""
        if not self.closing:
            self.member.core.subscribe(self.member.now, topics)
            self._witness.subscribed(self.member)
            self.member.take_effects()

    def _completed(self, complete: Complete) -> None:
        then = self._tickets.pop(complete.ticket, None)
        if then is not None:
            then(complete)

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """``consumer.stop()``: the next step counts the last batch, then the loop ends."""
        if self.closing:
            return
        self.ending = True
        self.member.core.stop(self.member.now)
        self.member.take_effects()

    def leave(self) -> None:
        """Leave the loop in the midst of a batch, which then does not count, and close."""
        if not self.closing:
            self._batch = []
            if self._body is not None:
                self._body.cancel()
                self._body = None
            if self._uncounted:
                self._witness.left_uncounted(self.member)
            self._close()

    def _close(self) -> None:
        self.closing = self.ending = True
        self.parked = False
        if self._next_step is not None:
            self._next_step.cancel()
        if self.shape in (Shape.TASKS, Shape.GROUP):
            if self.shape is Shape.TASKS:
                # Closing stops the runner's loop; the loop around a task group was just left,
                # and could be taken up again.
                self.member.core.stop(self.member.now)
                for partition in sorted(self._waiting):
                    self._drop(partition)
            self._draining = True
            self.member.core.stop(self.member.now)
            self.member.core.boundary(self.member.now, inside=True)
            self.member.take_effects()
            self._maybe_drained()
            return
        if self.shape is Shape.ACK:
            # Nobody waits for acknowledgements of the user: what still runs is given up, and
            # what was acknowledged beyond it does not count either.
            if self.patient:
                self._draining = True
                self._maybe_drained()
                return
            if self._running or any(self._waiting.values()):
                self._witness.left_uncounted(self.member)
            for partition in sorted(self._waiting):
                self._abandon(partition)
        self._close_consumer()

    def _maybe_drained(self) -> None:
        if self._draining and not self._running and not any(self._waiting.values()):
            self._draining = False
            if self.shape is not Shape.ACK:
                self.member.core.boundary(self.member.now, inside=False)
            self._close_consumer()

    def _close_consumer(self) -> None:
        self.closing = self.ending = True
        self._witness.closing(self.member)
        ticket = self.member.core.close(self.member.now)
        self._tickets[ticket] = self._closed
        self.member.take_effects()

    def _closed(self, _complete: Complete) -> None:
        self._witness.closed(self.member)
        for _, alarm in self._running.values():
            alarm.cancel()
        self.member.die()
        self.on_closed()

    def works_on(self, partition: TopicPartition) -> bool:
        """Whether something of this partition is not done, or the loop has not come round."""
        return (
            not (self.parked or self.closing)
            or (self._draining and self.shape is Shape.GROUP)
            or partition in self._delayed
            or bool(self._busy.get(partition))
            or bool(self._waiting.get(partition))
        )

    def facts(self) -> Mapping[str, object]:
        """For a failure report."""
        return {
            "shape": self.shape.value,
            "parked": self.parked,
            "closing": self.closing,
            "running": sorted(
                f"{tp.topic}-{tp.partition}@{offset}" for tp, offset in self._running
            ),
            "in body": len(self._batch),
        }
