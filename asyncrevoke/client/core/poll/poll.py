"""What one step of the iterator returns, and when.

``docs/internals/how-it-runs.md`` lists the rules of a poll.

A step begins with the first poll after a result: the last batch is completed, and announced
revocations without records in flight complete. It ends with a result: records, a revocation, a
loss, an error, or the caller's timeout. Nothing is awaited between taking records and returning
them, so that cancelling a waiting step loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.partition.instance import InstanceState
from asyncrevoke.client.core.poll.large_polls import LargePoll, LargePolls
from asyncrevoke.client.errors import LogTruncationError, NoOffsetError, OffsetOutOfRangeError
from asyncrevoke.client.model import PollResult
from asyncrevoke.client.record_parts import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.membership.session_guard import SessionGuard
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.core.poll.reactions import PollReactions
    from asyncrevoke.client.errors import FatalError
    from asyncrevoke.client.model import Record, TopicPartition

_TICK_TIMER = "revoke-tick"
_IDLE_TIMER = "poll-interval"
_LOOK_TIMER = "records-asked-for"
# Handlers take up to so many times max_poll_records at once if the records are small, together no
# more than so many bytes: each poll costs the time of some hundred records.
_POLLS_FOR_HANDLERS = 4
_BYTES_FOR_HANDLERS = 2**20
# Handlers of columns take up to so many bytes: a poll costs the time of thousands of rows.
_BYTES_OF_ROWS = 2**24
# How often in max_poll_interval a reader's progress is looked at.
_LOOKS = 16


class StepErrors:
    """The errors that no step has raised yet, oldest first.

    An error often ends the loop. So a position outside the log is raised after the records that
    were buffered when it was noticed; any other error at once.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._errors: list[Exception] = []
        # Where the buffered records end that an error waits for.
        self._buffered: dict[Exception, dict[PartitionInstance, tuple[RecordBuffer, int]]] = {}
        # Steps in a row that returned records, but none that an error waits for.
        self._steps_beside = 0

    def add(self, error: Exception) -> None:
        """Raise this in a step."""
        self._errors.append(error)
        if isinstance(error, OffsetOutOfRangeError):
            self._buffered[error] = {
                instance: (buffer, buffer.fetch_position)
                for instance in self._assignment.live()
                if (buffer := instance.buffer) is not None and buffer.buffered
            }
            self._steps_beside = 0

    def position_set(self, partitions: Iterable[TopicPartition]) -> None:
        """The user has set these positions: forget errors about missing ones."""
        if not self._errors:
            return
        chosen = set(partitions)
        for error in list(self._errors):
            # The loss of records that were read is still raised.
            if (
                isinstance(error, (NoOffsetError, OffsetOutOfRangeError))
                and not isinstance(error, LogTruncationError)
                and chosen.issuperset(error.partitions)
            ):
                self._remove(error)

    def take(self, *, waiting: bool) -> Exception | None:
        """The error to raise now; with ``waiting`` also one that waits for records."""
        for error in self._errors:
            if waiting or not self._waits(error):
                self._remove(error)
                return error
        return None

    def delivered(self, partitions: Iterable[TopicPartition]) -> None:
        """A step has returned records of these partitions."""
        if not self._buffered:
            return
        awaited = {
            instance.partition for error in self._buffered for instance in self._awaited(error)
        }
        self._steps_beside = 0 if awaited & set(partitions) else self._steps_beside + 1

    def _waits(self, error: Exception) -> bool:
        # Each partition has had a turn by then: records that are left are blocked otherwise.
        return self._steps_beside <= len(self._assignment) and bool(self._awaited(error))

    def _awaited(self, error: Exception) -> list[PartitionInstance]:
        return [
            instance
            for instance, (buffer, end) in self._buffered.get(error, {}).items()
            if instance.buffer is buffer
            and self._is_undelivered(instance, buffer, end)
            and instance.state is InstanceState.ACTIVE
            and not instance.paused
        ]

    def _is_undelivered(self, instance: PartitionInstance, buffer: RecordBuffer, end: int) -> bool:
        kept = self._assignment.reader_records.first_kept(instance)
        return (kept is not None and kept < end) or (buffer.buffered > 0 and buffer.position < end)

    def _remove(self, error: Exception) -> None:
        self._errors = [other for other in self._errors if other is not error]
        self._buffered.pop(error, None)


class Poller:
    """Takes records and news for the iterator."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        assignment: Assignment,
        revocation: Revocation,
        returned_records: ReturnedRecords,
        fetcher: Fetcher,
        session_guard: SessionGuard,
        errors: StepErrors,
        reactions: PollReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._assignment = assignment
        self._revocation = revocation
        self._returned_records = returned_records
        self._fetcher = fetcher
        self._session_guard = session_guard
        self._pauses_unconfirmed = session_guard.is_enabled
        self._reactions = reactions
        self._errors = errors
        self.fatal: FatalError | None = None
        self._for_handlers = False
        self._large_polls = LargePolls(outbox, fetcher)
        self._polling = False
        self._started_at = 0.0
        self._tick_fired = False
        # Whether a position has passed offsets without records since the last result.
        self._position_passed = False
        self._inside = 0
        self.idle_since: float | None = None
        self.stopping = False
        self.stopped_at: float | None = None
        self.ended = False

    def poll(
        self,
        now: float,
        max_records: int | None,
        *,
        expired: bool,
        until_moved: bool = False,
        reader: RecordReader | None = None,
        large: LargePoll | None = None,
    ) -> PollResult | None:
        """See :meth:`Core.poll`."""
        if self._polling:
            self.idle_since = None
            self._revocation.resume_poll(now)
        elif not self.ended:
            self._begin(now)
        if self.ended:
            self._polling = False
            self._revocation.poll_ended()
            return None
        if not self._assignment.lost:
            # Return losses before an error, which may end the loop.
            self._raise_error()
        if reader is not None and not self._revocation.at_barrier:
            # A partition that is being revoked may be released when the next record is taken.
            max_records = 1
        slices: dict[TopicPartition, Sequence[Record]] = {}
        if large is None or expired or self._has_news or not self._large_polls.waits(now, large):
            slices = self._collect(now, max_records, reader, large)
        if not (slices or self._has_news):
            self._raise_error(waiting=True)
            moved = until_moved and self._position_passed
            if not (expired or moved or self._tick_due(now)):
                return None
        if slices:
            self._errors.delivered(slices)
        lost = self._assignment.take_lost()
        to_be_revoked = self._revocation.announce()
        self._polling = self._position_passed = False
        self._outbox.cancel_timer(_TICK_TIMER)
        self._large_polls.end()
        self._idle_from(now)
        return PollResult(slices, to_be_revoked, lost)

    @property
    def _has_news(self) -> bool:
        return self._revocation.has_news or bool(self._assignment.lost)

    def poll_for_handlers(self) -> None:
        """Handlers take the records from now on."""
        self._for_handlers = True

    def position_passed(self) -> None:
        """A position has passed offsets without records to deliver."""
        self._position_passed = True

    def is_waiting(self) -> bool:
        """Whether a poll waits for something to return."""
        return self._polling and self.idle_since is None

    def _begin(self, now: float) -> None:
        self._polling = True
        self._started_at = now
        self._tick_fired = False
        self._large_polls.begin()
        self.idle_since = None
        self._assignment.take_back()
        self._reactions.poll_started(now)
        self._returned_records.complete_last_batch(now)
        self._revocation.begin_poll(now)
        if self.stopping:
            self.end()

    def _collect(
        self,
        now: float,
        max_records: int | None,
        reader: RecordReader | None,
        large: LargePoll | None,
    ) -> dict[TopicPartition, Sequence[Record]]:
        """Deliver up to ``max_records``: first those kept from a reader, then fetched ones."""
        self._fetcher.polled()
        tracker = self._returned_records
        most = max_records or (self._max_poll_records() if large is None else large.records)
        limit = tracker.capacity(now, most)
        kept = self._assignment.reader_records.has_kept
        if limit <= 0 and not tracker.reserves_capacity:
            return {}
        if not (self._fetcher.collector.is_ready or kept):
            return {}
        if self._pauses_unconfirmed and self._session_guard.pauses_delivery(now):
            return {}
        taken: dict[TopicPartition, Sequence[Record]] = {}
        slices: list[tuple[PartitionInstance, Sequence[Record]]] = []
        if kept and limit > 0:
            for instance, records in self._assignment.reader_records.take_kept(
                limit, self._may_deliver
            ):
                taken[instance.partition] = records
                tracker.deliver(instance.partition, records, tracked=reader is not None)
                slices.append((instance, records))
                limit -= len(records)
        while limit > 0:
            part = limit if large is None else min(limit, LargePolls.at_once(large, taken.values()))
            found = self._collect_fetched(now, part, reader, taken, slices) if part > 0 else 0
            if large is None or not found:
                break
            limit -= found
        if tracker.reserves_capacity:
            left = most - sum(len(records) for _, records in slices)
            if (limit := tracker.reserved_capacity(left)) > 0:
                self._collect_fetched(now, limit, reader, taken, slices)
        if reader is not None and slices:
            tracker.return_by_reader(now, reader, slices)
        return taken

    def _max_poll_records(self) -> int:
        most = self._config.max_poll_records
        if not self._for_handlers:
            return most
        memory, room = self._fetcher.memory, self._config.max_in_flight // _POLLS_FOR_HANDLERS
        if memory.at_once is not None:
            return max(most, min(memory.records_in(_BYTES_OF_ROWS), room, memory.at_once))
        small = memory.records_in(_BYTES_FOR_HANDLERS)
        return max(most, min(small, room, _POLLS_FOR_HANDLERS * most))

    def _collect_fetched(
        self,
        now: float,
        limit: int,
        reader: RecordReader | None,
        taken: dict[TopicPartition, Sequence[Record]],
        slices: list[tuple[PartitionInstance, Sequence[Record]]],
    ) -> int:
        """Deliver up to ``limit`` fetched records, and add them to ``taken`` and ``slices``.
        Returns how many."""
        found = 0
        for partition, fetched in self._fetcher.collector.collect(now, limit).items():
            instance = self._returned_records.deliver(
                partition, fetched, tracked=reader is not None
            )
            former = taken.get(partition)
            # ``slices`` has the former ones too.
            taken[partition] = fetched if former is None else joined(former[:], fetched)
            slices.append((instance, fetched))
            found += len(fetched)
        return found

    def stop_reader_if_paused(self, now: float) -> None:
        """Let a reader return no further record while delivery is paused. Call only if the session
        guard is enabled."""
        if self._assignment.reader_records.is_open and self._session_guard.pauses_delivery(now):
            self._assignment.take_back()

    def _may_deliver(self, instance: PartitionInstance) -> bool:
        return instance.can.deliver and not instance.is_blocked

    def _tick_due(self, now: float) -> bool:
        if not self._revocation.delayed_by_user:
            return False
        at = self._started_at + self._config.delayed_revoke_poll_interval
        if self._tick_fired or now >= at:
            return True
        if not self._outbox.has_timer(_TICK_TIMER):
            self._outbox.set_timer(_TICK_TIMER, at, self._tick)
        return False

    def _tick(self, _now: float) -> None:
        # Not compared with the clock again: a timer that fires too early by a rounding error would
        # be set again and again.
        self._tick_fired = True
        self._outbox.wake()

    def fail(self, error: FatalError) -> None:
        """Raise this in every step from now on."""
        self.fatal = error

    # --- errors ----------------------------------------------------------------------------------

    def error(self, error: Exception) -> None:
        """Raise this in the next step, once; other partitions go on."""
        self._errors.add(error)
        self._outbox.wake()

    def _raise_error(self, *, waiting: bool = False) -> None:
        error = self._errors.take(waiting=waiting or self.fatal is not None) or self.fatal
        if error is not None:
            self._polling = False
            self._revocation.poll_ended()
            raise error

    # --- stopping and idling ---------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """End the iterator with its next step, which counts the last batch, or a waiting one."""
        self.stopping = True
        if self.stopped_at is None:
            self.stopped_at = now
        self._assignment.take_back()
        self._revocation.end_iterator()
        if self._polling:
            self.end()
        self._outbox.wake()

    def interrupt(self, now: float) -> None:
        """A waiting step was cancelled: the next poll continues it. Until then nothing is released,
        and ``max_poll_interval`` counts."""
        if self._polling:
            self._revocation.poll_ended()
            self._idle_from(now)

    def end(self) -> None:
        """Return no further results. The last batch is not completed if no step has done so."""
        self.ended = True
        self._assignment.take_back()
        self._revocation.end_iterator()

    def boundary(self, now: float, *, inside: bool) -> None:
        """The user awaits the library outside a poll: partitions that have drained are released,
        and ``max_poll_interval`` does not count."""
        self._inside += 1 if inside else -1
        if inside:
            self.idle_since = None
            self._revocation.resume_poll(now)
        elif not self._inside and not self._polling:
            self._revocation.poll_ended()
            self._idle_from(now)

    def disable_idle_check(self) -> None:
        """From now on ``max_poll_interval`` does not count: no poll is expected."""
        self.idle_since = None
        self._outbox.cancel_timer(_IDLE_TIMER)
        self._outbox.cancel_timer(_LOOK_TIMER)

    def note_records_taken(self, now: float) -> None:
        """Restart ``max_poll_interval`` if a reader's record was taken since the last look."""
        if self.idle_since is not None and self._assignment.reader_records.was_asked():
            self.idle_since = now

    def _look_again(self, now: float) -> None:
        self.note_records_taken(now)
        if self._assignment.reader_records.is_open:
            at = now + self._config.max_poll_interval / _LOOKS
            self._outbox.set_timer(_LOOK_TIMER, at, self._look_again)

    def _idle_from(self, now: float) -> None:
        self.idle_since = now
        if not self._outbox.has_timer(_IDLE_TIMER):
            at = now + self._config.max_poll_interval
            self._outbox.set_timer(_IDLE_TIMER, at, self._check_idle)
        if self._assignment.reader_records.is_open and not self._outbox.has_timer(_LOOK_TIMER):
            self._look_again(now)

    def _check_idle(self, now: float) -> None:
        self.note_records_taken(now)
        if self.idle_since is None:
            return
        at = self.idle_since + self._config.max_poll_interval
        if now < at:
            self._outbox.set_timer(_IDLE_TIMER, at, self._check_idle)
            return
        self._outbox.emit(
            log_events.MAX_POLL_INTERVAL_EXCEEDED, seconds=self._config.max_poll_interval
        )
        self._reactions.max_poll_interval_exceeded(now)
