"""Records the events of one session as journal entries."""

from __future__ import annotations

import asyncio
import json
from itertools import repeat
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Emit, Failed, Notify, NotifyKind, Replied
from asyncrevoke.client.errors import FatalError, IllegalStateError
from asyncrevoke.client.printable import is_caught_by
from asyncrevoke.journal.format.schema import CallOutcome, Content, RowKind
from asyncrevoke.journal.recording.acknowledgement_gate import AcknowledgementGate
from asyncrevoke.journal.recording.commit_gate import CommitGate
from asyncrevoke.journal.recording.commit_rows import commits_of, transactional_commits
from asyncrevoke.journal.recording.encoding import encode_last, pack, rows_of
from asyncrevoke.journal.recording.entries import (
    Attempts,
    Entry,
    Fact,
    LoopTurn,
    Packed,
    Queue,
    ReceivedBatches,
    Results,
    Starts,
    WrittenCount,
    changes_of,
)
from asyncrevoke.journal.recording.fetched_batches import FetchedBatches
from asyncrevoke.journal.recording.turn_times import TurnTimes, ended_early

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.model import GroupMetadata, PollResult, Record, TopicPartition
    from asyncrevoke.client.protocol.messages import OffsetCommitRequest
    from asyncrevoke.client.protocol.records import RecordDecoder
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision, WrittenResult
    from asyncrevoke.client.runtime.net.requests import Requests
    from asyncrevoke.journal.recording.writer import Writer

_NOTICES = {
    NotifyKind.ASSIGNED: RowKind.ASSIGN,
    NotifyKind.REVOKED: RowKind.RELEASED,
    NotifyKind.LOST: RowKind.LOST,
}

# Rows in an encoded batch, at least.
_ENOUGH = 2048
# Records that are encoded together: more do not fit into the processor's cache.
_MANY = 128
# Stands for the start time of a call without a recorded start.
_CLOSED = -1


class Recorder:
    """Makes journal entries of a session's events. ``clock`` returns microseconds since the epoch
    and never goes back. ``open_writer`` opens the files; its argument is called if they cannot
    be written."""

    def __init__(
        self,
        facts: Mapping[str, object],
        clock: Callable[[], int],
        open_writer: Callable[[Callable[[FatalError], object]], Writer],
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
        self._succeeded: list[Record] = []
        self._succeeded_turns: list[LoopTurn] = []
        self._fetched = FetchedBatches(clock, self._put_later, self._put_fetched)
        # The topics that have a handler.
        self._topics: set[str] = set()
        self._will_put = False
        self._core: DrivenCore | None = None
        self._position_of: Callable[[TopicPartition], int | None] | None = None
        # Records whose handlers started in this event loop iteration. ``_open`` has the start times
        # of running handlers.
        self._began: list[Record] = []
        self.handler_started: Callable[[Record], object] = self._began.append
        self._turn = TurnTimes()
        self._open: dict[Record, int] = {}
        # With ``strict``: records whose handlers are about to be called, and the task that waits
        # until their rows are on disk.
        self._starting: list[Record] = []
        self._starts: asyncio.Task[None] | None = None
        self._seen: list[WrittenCount] = []
        # The number of the next attempt, for records that have failed.
        self._next_attempt: dict[Record, int] = {}
        # Delivery times of records that are not acknowledged yet.
        self._delivered: dict[Record, int] = {}
        # When the offsets of the present transaction were sent, and the number of the next one.
        self._offsets_sent: int | None = None
        self._transactions = 0

    # --- the session -----------------------------------------------------------------------------

    def requests(self, requests: Requests) -> Requests:
        """Delay commits until the journal's rows of the committed records are on disk."""
        return CommitGate(requests, self)

    def share_requests(self, requests: Requests, core: ShareCore) -> Requests:
        """Delay acknowledgements until the journal's rows of their records are on disk."""
        return AcknowledgementGate(requests, self, core)

    def session_opened(
        self,
        core: DrivenCore,
        fail: Callable[[FatalError], object],
        position: Callable[[TopicPartition], int | None] | None = None,
    ) -> None:
        """Open the files and record the BEGIN row."""
        self._core = core
        self._position_of = position
        self._writer = self._open_writer(fail)
        self._queue = self._writer.queue
        facts = {**self._facts, "strict": self.strict, "content": self._content}
        self._put(Fact(RowKind.BEGIN, self._clock(), facts=json.dumps(facts)))

    def _put(self, entry: Entry) -> None:
        queue = self._queue
        if queue is None:
            return  # before the session, or after it
        if self._succeeded:
            self._put_packed()
        rows = rows_of(entry)
        queue.append((self._seq, entry))
        self._seq += rows
        if not isinstance(entry, (Packed, ReceivedBatches)):
            self._fresh += rows
        if self._fresh >= _ENOUGH:
            self._fresh = 0
            encode_last(queue, hashed=self._hashed)

    def _put_succeeded(
        self, records: Sequence[Record], started: int | Sequence[int], at: int
    ) -> None:
        """Queue records whose first call succeeded. Many are encoded together later."""
        if self._queue is None:
            return
        self._put_later()
        self._succeeded += records
        self._succeeded_turns.append(LoopTurn(len(records), started, at))
        if len(self._succeeded) >= _MANY:
            self._put_packed()

    def _put_later(self) -> None:
        if not self._will_put and self._writer is not None:
            self._will_put = True
            self._writer.later(self._put_now)

    def _put_now(self) -> None:
        self._will_put = False
        self._put_waiting()

    def _put_waiting(self) -> None:
        if self._succeeded:
            self._put_packed()
        self._put_fetched()

    def _put_fetched(self) -> None:
        received = self._fetched.taken()
        if received is not None:
            self._put(received)

    def _put_packed(self) -> None:
        records, turns = self._succeeded, self._succeeded_turns
        self._succeeded, self._succeeded_turns = [], []
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
        """Whether more rows wait for the writer than should."""
        return self._writer is not None and self._writer.behind

    async def flush(self) -> None:
        """Return when all rows are on disk. Raises JournalError."""
        self._queue_iteration(self._clock())
        self._put_waiting()
        if self._writer is not None:
            await self._writer.flush()

    def now(self) -> int:
        """See :class:`~.commit_gate.RecordsCommits`."""
        return self._clock()

    async def aclose(self) -> None:
        """Record the END row, and close the files. Raises JournalError."""
        if self._closed or self._writer is None:
            return
        self._closed = True
        self.loop_turn_ended(())
        now = self._clock()
        for record, since in self._delivered.items():
            self._put(Attempts([record], since, now, CallOutcome.GIVEN_UP, None))
        self._put_waiting()
        # The number of rows, including this one.
        self._put(Fact(RowKind.END, now, facts=json.dumps({"rows": self._seq + 1})))
        self._queue = None
        await self._writer.aclose()

    def handler_registered(self, topic: str, handler: str, order_by: str | None) -> None:
        """Record that a handler reads this topic."""
        self._topics.add(topic)
        facts = json.dumps({"handler": handler, "order_by": order_by})
        self._put(Fact(RowKind.TOPIC, self._clock(), topic, facts=facts))

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """A decoder that also records the received batches, if ``content`` is ``"batches"``."""
        return self._fetched.decoder(decode) if self._content == "batches" else decode

    # --- handlers --------------------------------------------------------------------------------

    def watch_completed(self, done: list[Record]) -> None:
        """Read the records of successful calls from ``done`` at the end of each event loop
        iteration."""
        self._seen.append(WrittenCount(done))

    def handlers_started(self, records: Sequence[Record]) -> None:
        """Handlers of these records were called. Calls that are running keep their start."""
        now = self._clock()
        self._queue_iteration(now)
        for record in records:
            self._open.setdefault(record, now)

    async def record_start(self, records: Sequence[Record]) -> None:
        """Return when the rows about the start of these calls are on disk. All calls that start in
        one event loop iteration share a write."""
        now = self._clock()
        self._queue_iteration(now, starts=False)
        for record in records:
            if record not in self._open:
                self._open[record] = now
                self._starting.append(record)
        starts = self._starts
        if starts is None:
            starts = self._starts = asyncio.create_task(self._write_starts())
            starts.add_done_callback(_retrieved)
        # If this caller is cancelled, the flush continues for the others.
        await asyncio.shield(starts)

    async def _write_starts(self) -> None:
        self._starts = None
        await self.flush()

    def _put_starts(self, now: int) -> None:
        starting, self._starting = self._starting, []
        self._open.update(dict.fromkeys(starting, now))
        self._put(Starts(starting, now))

    def loop_turn_began(self) -> None:
        """An event loop iteration begins, in which handlers may start."""
        self._turn.turn_began(self._clock())

    def loop_turn_ended(self, done: Sequence[Record]) -> None:
        """An event loop iteration has ended, in which the handlers of these records returned."""
        now = self._clock()
        began = self._began
        started = self._turn.start_of_calls(now)
        in_one = began and began == done and started == now
        if in_one and not (self._open or self._next_attempt or self._is_split()):
            # No call has waited: all began and ended in this iteration.
            self._put_succeeded(began, now, now)
            began.clear()
            return
        self._queue_iteration(now)
        for seen in self._seen:
            if seen.done is done:
                seen.count = 0

    def _is_split(self) -> bool:
        """Whether a part of this iteration was written already, or there are several lists of
        records."""
        return len(self._seen) > 1 or self._seen[0].count > 0

    def _queue_iteration(self, now: int, *, starts: bool = True) -> None:
        """Queue all events of this iteration so far, so that no later start seems to precede an
        end. ``starts``: also queue the calls that are about to start."""
        began = self._began
        started = self._turn.start_of_calls(now)
        began_before = began.copy() if started < now else []
        if began:
            opened = self._open
            if self.strict:  # record_start() has recorded their start
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
            # failure_decided() has recorded records that were sent to another topic.
            ended = [record for record, since in zip(done, started, strict=True) if since >= 0]
            started = [since for since in started if since >= 0]
        if self._next_attempt and any(record in self._next_attempt for record in ended):
            for record, since in zip(ended, started, strict=True):
                number = self._next_attempt.pop(record, 1)
                self._put(Attempts([record], since, now, attempt=number))
        elif ended:
            self._put_succeeded(ended, started, now)

    def batch_completed(self, records: Sequence[Record]) -> None:
        """Records of a batch call are completed."""
        now = self._clock()
        self._queue_iteration(now)
        self._ended(records, now)

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException
    ) -> None:
        """The call for a record has failed."""
        now = self._clock()
        self._queue_iteration(now)
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
        """The call for these records was cancelled."""
        now = self._clock()
        self._queue_iteration(now)
        cause = None if is_caught_by(error, asyncio.CancelledError) else error
        for record in records:
            since = self._open.pop(record, None)
            number = self._next_attempt.pop(record, 1)
            if since is not None:
                self._put(Attempts([record], since, now, CallOutcome.CANCELLED, number, cause))

    # --- iteration -------------------------------------------------------------------------------

    def batch_returned(self, batch: PollResult) -> None:
        """The iterator returns this batch to a loop."""
        if not batch.records:
            return
        now = self._clock()
        if self._manual:
            self._put(Attempts(list(batch.records), now, now, CallOutcome.DELIVERED, None))
        else:
            self._delivered.update(dict.fromkeys(batch.records, now))

    def step_begun(self, *, counts: bool) -> None:
        """The next step of the iterator begins. If it ``counts``, it completes the delivered
        records, except with ``commit_mode="ack"``."""
        if not self._delivered or self._facts["commit_mode"] == "ack":
            return
        if counts:
            records, started = list(self._delivered), list(self._delivered.values())
            self._put(Attempts(records, started, self._clock(), attempt=None))
        self._delivered.clear()

    def record_submitted(self, record: Record) -> None:
        """A task processes this record."""
        self._delivered.pop(record, None)

    def record_completed(self, record: Record) -> None:
        """This record is completed."""
        since = self._delivered.pop(record, None)
        if since is not None:
            self._put(Attempts([record], since, self._clock(), attempt=None))

    # --- the group -------------------------------------------------------------------------------

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, released or lost."""
        kind = _NOTICES[notify.kind]
        if kind is not RowKind.ASSIGN:
            # Calls that ended in this iteration ended before the release.
            self._queue_iteration(self._clock())
        for partition in sorted(notify.partitions):
            self._put_fact(kind, partition, self._position(partition))
            if kind is not RowKind.ASSIGN:
                self._forget(partition)

    def _forget(self, partition: TopicPartition, first: int = 0, last: int = 2**63) -> None:
        """Forget the attempt numbers of these records if they wait for a retry."""
        for record in list(self._next_attempt):
            is_one = record.topic_partition == partition and first <= record.offset <= last
            if is_one and record not in self._open:
                del self._next_attempt[record]

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""
        for kind, partition, offset, last, facts in changes_of(event):
            if kind is RowKind.LOCK_LOST and offset is not None and last is not None:
                # Calls that ended in this iteration ended before the loss.
                self._queue_iteration(self._clock())
                self._forget(partition, offset, last)
            self._put_fact(kind, partition, offset, last, facts=facts)

    def _put_fact(
        self,
        kind: RowKind,
        partition: TopicPartition,
        offset: int | None = None,
        last: int | None = None,
        *,
        facts: str | None = None,
    ) -> None:
        assert self._core is not None
        us = self._core.group_metadata()
        member = us.member_id or None
        fact = Fact(kind, self._clock(), *partition, offset, member, us.generation, facts=facts)
        self._put(fact._replace(last_offset=last))

    def _position(self, partition: TopicPartition) -> int | None:
        try:
            return None if self._position_of is None else self._position_of(partition)
        except IllegalStateError:
            return None  # no longer assigned

    def committed(self, request: OffsetCommitRequest, sent: int, reply: Replied | Failed) -> None:
        """A broker responded to a commit, or its outcome is unknown."""
        self.put_facts(commits_of(request, sent, self._clock(), reply))

    def put_facts(self, facts: Iterable[Fact]) -> None:
        """Queue these rows."""
        for fact in facts:
            self._put(fact)

    # --- transactions

    def offsets_sent(self, sent: int) -> None:
        """See :class:`~.commit_gate.RecordsCommits`."""
        self._offsets_sent = sent

    def results_written(self, results: Sequence[WrittenResult]) -> None:
        """Queue a row for each result; the offsets of the transaction wait until it is on disk."""
        now, number = self._clock(), self._transactions
        self._transactions += 1
        self._queue_iteration(now)
        self._put(Results(results, now, number))

    def transaction_committed(
        self, offsets: Mapping[TopicPartition, int], identity: GroupMetadata
    ) -> None:
        """The transaction is committed, with these offsets."""
        sent = self._offsets_sent
        self.put_facts(transactional_commits(offsets, identity, sent, self._clock()))


def _retrieved(task: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved, because the writer reports it to the consumer."""
    if not task.cancelled():
        task.exception()
