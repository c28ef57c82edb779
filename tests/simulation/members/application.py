"""Applications: each way in which users can drive a consumer, a
:class:`~simulation.members.consumer_style.ConsumerStyle`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.members.consumer_style import ITERATING_STYLES, ConsumerStyle, WorkTime
from simulation.members.paused_partitions import PausedPartitions
from simulation.members.pending_calls import PendingCalls
from simulation.members.record_tasks import RecordTasks
from simulation.members.single_records import SingleRecords

from asyncrevoke.client.errors import FatalError, PartitionLostError, PartitionsError
from asyncrevoke.client.model import PollResult, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulation.members.application_events import ApplicationEvents
    from simulation.members.member import SimulatedMember
    from simulation.transactions.batch_blocks import BatchBlocks

    from asyncrevoke.client.core.io.effects import CompleteRequest
    from asyncrevoke.client.model import OffsetAndMetadata, Record
    from asyncrevoke.testing.fake_kafka.clock import Alarm


class Application:
    """One application; ``start`` begins to poll. The member's events call back into it."""

    def __init__(
        self,
        member: SimulatedMember,
        style: ConsumerStyle,
        work_time: WorkTime,
        events: ApplicationEvents,
    ) -> None:
        self.member = member
        self.style = style
        self.parked = False
        self.closing = False
        self.work_time = work_time
        self.ending = False
        self._draining = False
        self._delayed: frozenset[TopicPartition] = frozenset()
        self.on_closed: Callable[[], None] = lambda: None
        # Whether tasks of the user are waited for before closing, which does not wait for them.
        self.patient = False
        self.paused_until = 0.0
        self._events = events
        self._rng = member.rng
        self._returned = False
        self._batch: list[Record] = []
        self._uncounted = False
        self._body: Alarm | None = None
        self._next_step: Alarm | None = None
        self.calls = PendingCalls(member, events)
        self.tasks = RecordTasks(
            member,
            events,
            self.calls,
            work_time,
            self._maybe_drained,
            acked=style is ConsumerStyle.ACK,
        )
        # Of a loop in which each batch has a transaction.
        self.blocks: BatchBlocks | None = None
        self.paused = PausedPartitions(member, events)
        self._wanted = style
        # Whether it has changed its style or sought back: then it does not follow what counts.
        self._has_changed = False
        # For how long to unsubscribe before the next step, if at all.
        self._unsubscribes_for: float | None = None
        # From what it has unsubscribed, until it subscribes again.
        self._unsubscribed_from: frozenset[str] = frozenset()
        # Who takes the records of the step that is under way one by one.
        self._reader: SingleRecords | None = None
        member.wake = self._woken
        if style.tracked:
            member.core.returned_records.track(
                one_by_one=True, next_poll_completes=style is ConsumerStyle.GROUP
            )

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
        if self._unsubscribes_for is not None and not (self.ending or self.style.tracked):
            self._unsubscribe(self._unsubscribes_for)
            return
        self._adopt_style()
        if self._returned:
            self._returned = False
            self._uncounted = False
            self._events.asked(self.member)
        self.parked = True
        self._reader = SingleRecords() if self.style is ConsumerStyle.RECORDS else None
        self._poll()

    def _woken(self) -> None:
        if self.parked:
            self._poll()

    def _poll(self, *, expired: bool = False) -> None:
        core = self.member.core
        try:
            result = core.poll(
                self.member.now, expired=expired, until_moved=True, reader=self._reader
            )
        except PartitionsError as error:
            self._events.failed(self.member, error)
            self.member.take_effects()
            self._step_again(0.01)
            return
        except FatalError as error:
            self.parked = False
            self._events.failed(self.member, error)
            self.member.take_effects()
            self._close_consumer()
            return
        self.member.take_effects()
        if result is not None:
            self.parked = False
            self._returned = True
            if self._reader is not None:
                # Records count as returned when they are taken.
                result = PollResult({}, result.to_be_revoked, result.lost)
            self._events.returned(self.member, result)
            self._work(result)
        elif core.poller.ended and not self.closing:
            self.parked = False
            self.close()
        else:
            self._events.polled_without_result(self.member)

    def _step_again(self, seconds: float) -> None:
        self.parked = False
        self._next_step = self.member.later(seconds, self.ask)

    def cancel_step(self, seconds: float) -> None:
        """Cancel a parked step, and take it up again later."""
        if self.parked:
            self.member.core.poller.interrupt(self.member.now)
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
            self.tasks.abandon(partition)
        if self.style.tracked:
            self._start_tasks(result)
        elif self._reader is not None:
            self._take_next()
        elif result.records:
            self._batch = list(result.records)
            seconds = sum(self.work_time.draw(self._rng) / 4 for _ in self._batch[:8])
            if self.blocks is not None:
                self.blocks.begin(self._batch, seconds, partial(self._next, 0.0))
                return
            self._body = self.member.later(seconds, self._body_ended)
        elif self.style is ConsumerStyle.MANUAL and not self.closing:
            # The position may have moved past offsets without records.
            self.calls.commit(self._manual_committed, self._first_unfinished())
        else:
            self._next(0.001)

    def _take_next(self) -> None:
        """Take a record without a step, or make one: for it, or because the style has changed."""
        self._next_step = None
        if self.closing:
            return
        goes_on = self._wanted is self.style and self._unsubscribes_for is None
        goes_on = goes_on and self.tasks.may_begin()
        record = self._reader.take() if self._reader is not None and goes_on else None
        if record is None:
            self._next(0.001)
            return
        self._uncounted = False
        self._events.asked(self.member)
        self._events.returned(self.member, PollResult({record.topic_partition: [record]}))
        self._batch = [record]
        self._body = self.member.later(self.work_time.draw(self._rng) / 4, self._body_ended)

    def _next(self, seconds: float) -> None:
        away = self.paused_until - self.member.now
        self._next_step = self.member.later(max(seconds, away), self.ask)

    def _body_ended(self) -> None:
        if self._body is None:
            return  # cancelled while the loop was blocked
        self._body = None
        for record in self._batch:
            self._events.done(self.member, record)
        self._batch = []
        self._uncounted = True
        if self.style is ConsumerStyle.MANUAL:
            self.calls.commit(self._manual_committed, self._first_unfinished())
        elif self._reader is not None:
            away = self.paused_until - self.member.now
            self._next_step = self.member.later(max(away, 0.0), self._take_next)
        else:
            self._next(0.0)

    def _manual_committed(self, complete: CompleteRequest) -> None:
        if complete.error is not None and not isinstance(complete.error, PartitionLostError):
            self._events.failed(self.member, complete.error)
            if isinstance(complete.error, FatalError):
                if not self.closing:
                    self._close_consumer()
                return
            if not self.closing:
                # Nobody else commits what was rejected.
                self._next_step = self.member.later(0.5, self._commit_again)
                return
        if not self.closing:
            self._next(0.0)

    def _commit_again(self) -> None:
        self._next_step = None
        if not self.closing:
            self.calls.commit(self._manual_committed, self._first_unfinished())

    def _start_tasks(self, result: PollResult) -> None:
        self._delayed = frozenset()
        self.tasks.start(result.records, submit=self.style is ConsumerStyle.GROUP)
        if self.style is ConsumerStyle.TASKS:
            for partition in sorted(result.to_be_revoked):
                self.tasks.revocation_announced(partition)
        elif self.style is ConsumerStyle.ACK and self._delay(result.to_be_revoked):
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
        busy = frozenset(tp for tp in announced if self.tasks.has(tp))
        if busy and not self.closing:
            ours = self.member.core.revocation.delay(sorted(busy))
            self.member.take_effects()
            self._events.delayed(self.member, busy, ours)
            # What was delayed before stays so until it is listed again.
            self._delayed |= busy
        return bool(busy)

    # --- requests --------------------------------------------------------------------------------

    def commit(self) -> None:
        """Flush what counts."""
        # In manual mode this would commit the batch that is being worked on.
        if not self.closing and self.style is not ConsumerStyle.MANUAL:
            self.calls.commit(
                lambda complete: self._flushed(complete.error), self._first_unfinished()
            )

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit these (manual mode)."""
        self.calls.commit_offsets(offsets, lambda complete: self._flushed(complete.error))

    def _first_unfinished(self) -> dict[TopicPartition, int] | None:
        """The first record of each partition that is not done, if there is one; None while the
        application cannot know which records count."""
        between_batches = self.style is not ConsumerStyle.LOOP or self.parked
        if self._has_changed or self.style is ConsumerStyle.RECORDS or not between_batches:
            return None
        first: dict[TopicPartition, int] = {}
        for record in self.tasks.unfinished():
            partition = record.topic_partition
            first[partition] = min(record.offset, first.get(partition, record.offset))
        return first

    def _flushed(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, PartitionsError):
            self._events.failed(self.member, error)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics."""
        if not self.closing:
            self._unsubscribed_from = frozenset()
            self.member.core.subscription_state.subscribe(self.member.now, topics)
            self._events.subscribed(self.member)
            self.member.take_effects()

    def change_style(self, choice: int) -> None:
        """Take batches, single records, or batches in a task group, from the next step on."""
        if self.style in ITERATING_STYLES and self.blocks is None:
            self._wanted = ITERATING_STYLES[choice % len(ITERATING_STYLES)]

    def _adopt_style(self) -> None:
        if self._wanted is self.style or self.tasks.any():
            return  # a task group is left when its tasks have ended
        self.style = self._wanted
        self._has_changed = True
        self._events.changed_style(self.member, self.style.tracked)
        self.member.core.returned_records.track(
            one_by_one=self.style.tracked, next_poll_completes=self.style is ConsumerStyle.GROUP
        )

    def unsubscribe_for(self, seconds: float) -> None:
        """Unsubscribe before the next step, and subscribe again later."""
        self._unsubscribes_for = seconds

    def _unsubscribe(self, seconds: float) -> None:
        core = self.member.core
        if self._uncounted:
            self._events.left_uncounted(self.member)
        self._events.unsubscribing(self.member)
        self._unsubscribed_from = core.subscription_state.subscription()
        core.poller.boundary(self.member.now, inside=True)
        self.calls.unsubscribe(partial(self._unsubscribed, seconds))

    def _unsubscribed(self, seconds: float, complete: CompleteRequest) -> None:
        self._events.unsubscribed(self.member)
        self._flushed(complete.error)
        if not self.closing:
            self.member.core.poller.boundary(self.member.now, inside=False)
            self.member.take_effects()
            self._next_step = self.member.later(seconds, self._subscribe_again)

    def _subscribe_again(self) -> None:
        self._unsubscribes_for = None
        # Unless it has subscribed to others meanwhile.
        if self._unsubscribed_from and not self.ending:
            self.subscribe(tuple(sorted(self._unsubscribed_from)))
        self.ask()

    def read_again(self) -> None:
        """Leave what is in hand unfinished, and seek back to it."""
        core, first = self.member.core, self._interrupt_work()
        for partition, offset in first.items():
            self._events.sought(self.member, partition, offset)
            core.seek(self.member.now, partition, offset)
        if first:
            self._next(0.0)
            self.member.take_effects()

    def seek_to(self, *, to_end: bool) -> None:
        """Leave what is in hand unfinished, and go on at the ends of its partitions."""
        partitions = sorted(self._interrupt_work())
        if partitions:
            for partition in partitions:
                self._events.seeking_to(self.member, partition, to_end)
            self.calls.seek_to(partitions, self._sought_to, to_end=to_end)

    def _sought_to(self, complete: CompleteRequest) -> None:
        self._flushed(complete.error)
        if not self.closing:
            self._next(0.0)

    def _interrupt_work(self) -> dict[TopicPartition, int]:
        """Stop working on a batch if all of it may be sought: its first offsets, by partition."""
        core, first = self.member.core, dict[TopicPartition, int]()
        for record in self._batch:
            first.setdefault(record.topic_partition, record.offset)
        if (
            self._body is None
            or self.closing
            or not all(core.owns(record) for record in self._batch)
            or any(core.is_revoking(partition) for partition in first)
        ):
            return {}
        self._has_changed = True
        self._body.cancel()
        self._body, self._batch = None, []
        return first

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """``consumer.stop()``: the next step counts the last batch, then the loop ends."""
        if self.closing:
            return
        self.ending = True
        self.tasks.stop()
        self.member.core.poller.stop(self.member.now)
        self.member.take_effects()

    def leave(self) -> None:
        """Leave the loop in the midst of a batch, which then does not count, and close."""
        if not (self.closing or (self.blocks is not None and self.blocks.cancel())):
            self._batch = []
            if self._body is not None:
                self._body.cancel()
                self._body = None
            if self._uncounted:
                self._events.left_uncounted(self.member)
            self.close()

    def close(self) -> None:
        """Close the consumer, when the tasks have ended."""
        self.closing = self.ending = True
        self.parked = False
        if self._next_step is not None:
            self._next_step.cancel()
        if self.style in (ConsumerStyle.TASKS, ConsumerStyle.GROUP):
            if self.style is ConsumerStyle.TASKS:
                # Closing stops the runner's loop; the one around a task group could go on.
                self.member.core.poller.stop(self.member.now)
                for partition in self.tasks.waiting_partitions():
                    self.tasks.drop_unstarted(partition)
            self._draining = True
            self.member.core.poller.stop(self.member.now)
            self.member.core.poller.boundary(self.member.now, inside=True)
            self.member.take_effects()
            self._maybe_drained()
            return
        if self.style is ConsumerStyle.ACK:
            # Closing does not wait for acknowledgements of the user: tasks that still run are
            # abandoned, and records acknowledged beyond them do not count either.
            if self.patient:
                self._draining = True
                self._maybe_drained()
                return
            if self.tasks.any():
                self._events.left_uncounted(self.member)
            for partition in self.tasks.waiting_partitions():
                self.tasks.abandon(partition)
        self._close_consumer()

    def _maybe_drained(self) -> None:
        if self._draining and not self.tasks.any():
            self._draining = False
            self.tasks.flush(self._close_drained)

    def _close_drained(self) -> None:
        if self.style is not ConsumerStyle.ACK:
            self.member.core.poller.boundary(self.member.now, inside=False)
        self._close_consumer()

    def _close_consumer(self) -> None:
        self.closing = self.ending = True
        self._events.closing(self.member)
        self.calls.close(self._closed)

    def _closed(self, _complete: CompleteRequest) -> None:
        self._events.closed(self.member)
        self.tasks.end(self._ended)

    def _ended(self) -> None:
        self.member.die()
        self.on_closed()

    def works_on(self, partition: TopicPartition) -> bool:
        """Whether something of this partition is not done, or the loop has not come round."""
        return (
            not (self.parked or self.closing)
            or (self._draining and self.style is ConsumerStyle.GROUP)
            or partition in self._delayed
            or self.tasks.has(partition)
        )

    def polls(self, partition: TopicPartition) -> bool:
        """Whether it waits for records, and has none of this partition."""
        return self.parked and not self.tasks.has(partition)

    def facts(self) -> Mapping[str, object]:
        """For a failure report."""
        return {
            "style": self.style.value,
            "parked": self.parked,
            "closing": self.closing,
            "running": sorted(f"{tp[0]}-{tp[1]}@{offset}" for tp, offset in self.tasks.running()),
            "in body": len(self._batch),
        }
