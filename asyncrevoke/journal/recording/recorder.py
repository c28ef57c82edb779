"""Records what happens in one session as journal entries."""

from __future__ import annotations

import asyncio
import json
from itertools import repeat
from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Failed, FailureKind, NotifyKind, Replied
from asyncrevoke.errors import IllegalStateError
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.commit_gate import CommitGate
from asyncrevoke.journal.recording.core_events import changes_of
from asyncrevoke.journal.recording.encoding import encode_last, pack, rows_of
from asyncrevoke.journal.recording.entries import (
    Attempts,
    Fact,
    Fetched,
    Notes,
    Packed,
    Starts,
    Turn,
    WrittenCount,
)
from asyncrevoke.journal.recording.turn_times import TurnTimes, ended_early
from asyncrevoke.protocol.messages import ErrorCode, OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.core.io.effects import Emit, Notify
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.recording.entries import Entry, Queue
    from asyncrevoke.journal.recording.writer import Writer
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.protocol.messages import FetchedPartition
    from asyncrevoke.protocol.records import RecordBatch, RecordDecoder
    from asyncrevoke.runtime.hooks.call_recorder import FailureDecision
    from asyncrevoke.runtime.hooks.journal_hooks import CoreView, FailsConsumer
    from asyncrevoke.runtime.net.requests import Requests

_NOTICES = {
    NotifyKind.ASSIGNED: RowKind.ASSIGN,
    NotifyKind.REVOKED: RowKind.RELEASED,
    NotifyKind.LOST: RowKind.LOST,
}

# Rows in one encoded batch, at least.
_ENOUGH = 2048
# Records that are encoded together: more would not fit into the processor's cache.
_MANY = 128
# The start time of a record whose start was not seen.
_CLOSED = -1


class Recorder:
    """Makes journal entries of a session's events. ``clock`` returns microseconds since the epoch
    and never goes back. ``open_writer`` opens the files; its argument fails if they cannot be
    written."""

    def __init__(
        self,
        facts: Mapping[str, object],
        clock: Callable[[], int],
        open_writer: Callable[[FailsConsumer], Writer],
        *,
        strict: bool,
        content: Content | None,
    ) -> None:
        self.strict = strict
        self._content = content
        self._hashed = content == "records"
        self._facts = facts
        self._clock = clock
        self._open_writer = open_writer
        self._manual = facts["commit_mode"] == "manual"
        self._closed = False
        # Set by session_opened().
        self._writer: Writer | None = None
        self._queue: Queue | None = None
        # The number of the next row, and how many rows were queued since the last encoding.
        self._seq = 0
        self._fresh = 0
        # Records whose first call succeeded and that are not queued yet, with their times.
        self._well: list[Record] = []
        self._well_turns: list[Turn] = []
        # Received batches, queued before any of their records is committed.
        self._fetched: list[Fetched] = []
        # The topics that have a handler.
        self._topics: set[str] = set()
        self._will_put = False
        self._group: CoreView | None = None
        # Handlers started in this turn of the event loop; ``_open`` has the time of those that run.
        self._began: list[Record] = []
        self.handler_started: Callable[[Record], object] = self._began.append
        self._turn = TurnTimes()
        self._open: dict[Record, int] = {}
        # With ``strict``: handlers about to be called, and the task that waits until that is on
        # disk.
        self._starting: list[Record] = []
        self._starts: asyncio.Task[None] | None = None
        self._seen: list[WrittenCount] = []
        # The number of the next attempt, of records that have failed.
        self._next_attempt: dict[Record, int] = {}
        # When records were delivered that no acknowledgement has named yet.
        self._delivered: dict[Record, int] = {}

    # --- the session -----------------------------------------------------------------------------

    def requests(self, requests: Requests) -> Requests:
        """Delay commits until the journal's rows of the committed records are on disk."""
        return CommitGate(requests, self)

    def session_opened(self, group: CoreView, consumer: FailsConsumer) -> None:
        """The session begins."""
        self._group = group
        self._writer = self._open_writer(consumer)
        self._queue = self._writer.queue
        facts = {**self._facts, "strict": self.strict, "content": self._content}
        self._put(Fact(RowKind.BEGIN, self._clock(), facts=json.dumps(facts)))

    def _put(self, entry: Entry) -> None:
        queue = self._queue
        if queue is None:
            return  # before the session, or after it
        if self._well:
            self._put_packed()
        rows = rows_of(entry)
        queue.append((self._seq, entry))
        self._seq += rows
        if not isinstance(entry, (Packed, Notes)):
            self._fresh += rows
        if self._fresh >= _ENOUGH:
            self._fresh = 0
            encode_last(queue, hashed=self._hashed)

    def _put_well(self, records: Sequence[Record], started: int | Sequence[int], at: int) -> None:
        """Queue records whose first call succeeded. They are encoded later, many at once."""
        if self._writer is None or self._queue is None:
            return
        self._put_later(self._writer)
        self._well += records
        self._well_turns.append(Turn(len(records), started, at))
        if len(self._well) >= _MANY:
            self._put_packed()

    def _put_later(self, writer: Writer) -> None:
        if not self._will_put:
            self._will_put = True
            writer.later(self._put_now)

    def _put_now(self) -> None:
        self._will_put = False
        self._put_waiting()

    def _put_waiting(self) -> None:
        if self._well:
            self._put_packed()
        self._put_fetched()

    def _put_fetched(self) -> None:
        if self._fetched:
            notes = Notes(self._fetched, self._clock())
            self._fetched = []
            self._put(notes)

    def _put_packed(self) -> None:
        records, turns = self._well, self._well_turns
        self._well, self._well_turns = [], []
        one_topic = len(self._topics) == 1
        packed = pack(records, turns, hashed=self._hashed, one_topic=one_topic)
        if packed is not None:
            self._put(packed)
            return
        first = 0
        for rows, started, at in turns:
            self._put(Attempts(records[first : first + rows], started, at))
            first += rows

    @property
    def behind(self) -> bool:
        """Whether the writer is behind: more rows wait than should."""
        return self._writer is not None and self._writer.behind

    async def flush(self) -> None:
        """Return when all is on disk."""
        self._settle(self._clock())
        self._put_waiting()
        if self._writer is not None:
            await self._writer.flush()

    async def aclose(self) -> None:
        """The session has ended."""
        if self._closed or self._writer is None:
            return
        self._closed = True
        self.loop_turn_ended(())
        now = self._clock()
        for record, since in self._delivered.items():
            self._put(Attempts([record], since, now, CallOutcome.GIVEN_UP, None))
        self._put_waiting()
        # How many rows there are, this one included.
        self._put(Fact(RowKind.END, now, facts=json.dumps({"rows": self._seq + 1})))
        self._queue = None
        await self._writer.aclose()

    def handler_registered(self, topic: str, handler: str, order_by: str | None) -> None:
        """A handler has this topic."""
        self._topics.add(topic)
        facts = json.dumps({"handler": handler, "order_by": order_by})
        self._put(Fact(RowKind.TOPIC, self._clock(), topic, facts=facts))

    # --- batches ---------------------------------------------------------------------------------

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """The same, which writes down what batches come, if that is wanted."""
        if self._content != "batches":
            return decode

        def noting(fetched: FetchedPartition, read_committed: bool, /) -> Sequence[RecordBatch]:
            batches = decode(fetched, read_committed)
            self._came(fetched.partition, batches)
            return batches

        return noting

    def _came(self, partition: TopicPartition, batches: Sequence[RecordBatch]) -> None:
        if self._writer is None:
            return
        now = self._clock()
        topic, number = partition
        self._fetched += [
            Fetched(topic, number, b.base_offset, b.next_offset - 1, b.count, b.checksum, now)
            for b in batches
            if b.count  # there are records that may be handled
        ]
        if len(self._fetched) >= _ENOUGH:
            self._put_fetched()
        elif self._fetched:
            self._put_later(self._writer)

    # --- handlers --------------------------------------------------------------------------------

    def watch_completed(self, done: list[Record]) -> None:
        """Read the records of successful calls from ``done`` at the end of each turn."""
        self._seen.append(WrittenCount(done))

    def handlers_started(self, records: Sequence[Record]) -> None:
        """Handlers of these records were called; calls that run already keep their start."""
        now = self._clock()
        self._settle(now)
        for record in records:
            self._open.setdefault(record, now)

    async def record_start(self, records: Sequence[Record]) -> None:
        """Return when the start of these calls is on disk. All calls that start in one turn of the
        event loop share one write."""
        now = self._clock()
        self._settle(now, starts=False)
        for record in records:
            if record not in self._open:
                self._open[record] = now
                self._starting.append(record)
        starts = self._starts
        if starts is None:
            starts = self._starts = asyncio.create_task(self._write_starts())
            starts.add_done_callback(_retrieved)
        # A cancelled caller leaves the flush to the others.
        await asyncio.shield(starts)

    async def _write_starts(self) -> None:
        self._starts = None
        await self.flush()

    def _put_starts(self, now: int) -> None:
        starting, self._starting = self._starting, []
        self._open.update(dict.fromkeys(starting, now))
        self._put(Starts(starting, now))

    def loop_turn_began(self) -> None:
        """Handlers may start in this turn of the event loop."""
        self._turn.turn_began(self._clock())

    def loop_turn_ended(self, done: Sequence[Record]) -> None:
        """A turn of the event loop has ended, in which the handlers of these records returned."""
        now = self._clock()
        began = self._began
        started = self._turn.start_of_calls(now)
        in_one = began and began == done and started == now
        if in_one and not (self._open or self._next_attempt or self._is_split()):
            # Nothing was waited for: all of it began and ended in this turn.
            self._put_well(began, now, now)
            began.clear()
            return
        self._settle(now)
        for seen in self._seen:
            if seen.done is done:
                seen.count = 0

    def _is_split(self) -> bool:
        """Whether a part of this turn was written already, or belongs to another turn."""
        return len(self._seen) > 1 or self._seen[0].count > 0

    def _settle(self, now: int, *, starts: bool = True) -> None:
        """Queue all of this turn so far, so that a later start never seems to precede an end.
        ``starts``: also queue the calls that are about to start."""
        began = self._began
        started = self._turn.start_of_calls(now)
        began_before = began.copy() if started < now else []
        if began:
            opened = self._open
            if self.strict:  # since before
                began = [record for record in began if record not in opened]
            opened.update(dict.fromkeys(began, started))
            self._began.clear()
        for seen in self._seen:
            if len(seen.done) > seen.count:
                ended = seen.done[seen.count :]
                seen.count = len(seen.done)
                if early := ended_early(began_before, ended):
                    self._ended(early, started)
                    ended = [record for record in ended if record not in early]
                self._ended(ended, now)
        if starts and self._starting:
            self._put_starts(now)

    def _ended(self, done: Sequence[Record], now: int) -> None:
        ended: Sequence[Record] = done
        started: Sequence[int] = list(map(self._open.pop, done, repeat(_CLOSED)))
        if _CLOSED in started:
            # A record that went to another topic has been written down already.
            ended = [record for record, since in zip(done, started, strict=True) if since >= 0]
            started = [since for since in started if since >= 0]
        if self._next_attempt and any(record in self._next_attempt for record in ended):
            for record, since in zip(ended, started, strict=True):
                number = self._next_attempt.pop(record, 1)
                self._put(Attempts([record], since, now, attempt=number))
        elif ended:
            self._put_well(ended, started, now)

    def batch_completed(self, records: Sequence[Record]) -> None:
        """Records of a batch are done."""
        now = self._clock()
        self._settle(now)
        self._ended(records, now)

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException
    ) -> None:
        """A record's call has failed."""
        now = self._clock()
        self._settle(now)
        since = self._open.pop(record, None)
        if since is None:
            return
        number = self._next_attempt.pop(record, 1)
        # The next owner of the partition processes the record.
        given_up = decision == "abandoned"
        outcome = CallOutcome.GIVEN_UP if given_up else CallOutcome(decision)
        self._put(Attempts([record], since, now, outcome, number, error))
        if outcome is CallOutcome.RETRIED:
            self._next_attempt[record] = number + 1

    def handler_cancelled(self, records: Sequence[Record], error: BaseException) -> None:
        """The call of these was cancelled."""
        now = self._clock()
        self._settle(now)
        cause = None if isinstance(error, asyncio.CancelledError) else error
        for record in records:
            since = self._open.pop(record, None)
            number = self._next_attempt.pop(record, 1)
            if since is not None:
                self._put(Attempts([record], since, now, CallOutcome.CANCELLED, number, cause))

    # --- iteration -------------------------------------------------------------------------------

    def batch_returned(self, batch: PollResult) -> None:
        """A step returns this to a loop."""
        if not batch.records:
            return
        now = self._clock()
        if self._manual:
            self._put(Attempts(list(batch.records), now, now, CallOutcome.DELIVERED, None))
        else:
            self._delivered.update(dict.fromkeys(batch.records, now))

    def step_begun(self, *, counts: bool) -> None:
        """The next step starts. With acks nothing counts by that."""
        if not self._delivered or self._facts["commit_mode"] == "ack":
            return
        if counts:
            self._put(
                Attempts(
                    list(self._delivered),
                    list(self._delivered.values()),
                    self._clock(),
                    attempt=None,
                )
            )
        self._delivered.clear()

    def record_submitted(self, record: Record) -> None:
        """A task takes it over."""
        self._delivered.pop(record, None)

    def record_completed(self, record: Record) -> None:
        """It is done."""
        since = self._delivered.pop(record, None)
        if since is not None:
            self._put(Attempts([record], since, self._clock(), attempt=None))

    # --- the group -------------------------------------------------------------------------------

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, released or lost."""
        kind = _NOTICES[notify.kind]
        if kind is not RowKind.ASSIGN:
            # What ended in this turn ended before the release.
            self._settle(self._clock())
        for partition in sorted(notify.partitions):
            self._tell(kind, partition, self._position(partition))
        if kind is not RowKind.ASSIGN:
            self._forget(notify.partitions)

    def _forget(self, gone: frozenset[TopicPartition]) -> None:
        """Forget the attempt numbers of records of lost partitions that wait for a retry."""
        if self._next_attempt:
            waiting = [r for r in self._next_attempt if r not in self._open]
            for record in waiting:
                if record.topic_partition in gone:
                    del self._next_attempt[record]

    def core_reported(self, event: Emit) -> None:
        """An event of the core."""
        for kind, partition, offset, facts in changes_of(event):
            self._tell(kind, partition, offset, facts=facts)

    def _tell(
        self,
        kind: RowKind,
        partition: TopicPartition,
        offset: int | None = None,
        *,
        facts: str | None = None,
    ) -> None:
        assert self._group is not None
        us = self._group.group_metadata()
        member = us.member_id or None
        fact = Fact(kind, self._clock(), *partition, offset, member, us.generation, facts=facts)
        self._put(fact)

    def _position(self, partition: TopicPartition) -> int | None:
        assert self._group is not None
        try:
            return self._group.position(partition)
        except IllegalStateError:
            return None  # it is not ours any more

    def committed(self, request: OffsetCommitRequest, reply: Replied | Failed) -> None:
        """A commit was answered, or its outcome is unknown."""
        now = self._clock()
        if isinstance(reply, Failed):
            if reply.kind is FailureKind.UNREACHABLE:
                return
            taken, outcome = {e.partition for e in request.entries}, CallOutcome.UNKNOWN
        else:
            answer = reply.message
            if not isinstance(answer, OffsetCommitResponse):
                return
            taken = {tp for tp, error in answer.errors if error is ErrorCode.none}
            outcome = CallOutcome.OK
        for entry in request.entries:
            if entry.partition in taken:
                member, generation = request.member_id or None, request.generation
                topic, number = entry.partition
                offset = entry.offset
                fact = Fact(RowKind.COMMIT, now, topic, number, offset, member, generation, outcome)
                self._put(fact)


def _retrieved(task: asyncio.Task[None]) -> None:
    """Mark the error as retrieved: the writer reports it to the consumer."""
    if not task.cancelled():
        task.exception()
