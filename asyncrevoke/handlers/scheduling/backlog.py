"""Records and batches that the source has delivered and that are neither done nor abandoned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.handlers.policy.batch import (
    HandlerBatch,
    Item,
    Unsent,
    first_unfinished_offset,
    unfinished_records,
)
from asyncrevoke.handlers.scheduling.attempts import TRACED, AttemptState, ProbedPause, RetryQueue
from asyncrevoke.handlers.scheduling.batch_assembler import BatchAssembler

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.model import FailurePause, Record, TopicPartition
    from asyncrevoke.handlers.policy.registration import BatchOptions, Handler
    from asyncrevoke.handlers.scheduling.handler_ordering import HandlerLimiter, HandlerOrdering
    from asyncrevoke.handlers.scheduling.lanes import LaneQueue
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.handlers.scheduling.record_source import TakenRecords


class BacklogReactions(Protocol):
    """Reacts to the events of a backlog. Implemented by :class:`HandlerPipeline`."""

    def entries_ready(self) -> None:
        """Wake the workers: entries may be ready, or no entry is left to wait for."""


class Backlog:
    """Items in batches that are not full, in lanes, between two attempts, or running.

    ``attempts`` has the state of each item that has failed and is not abandoned, and of each record
    whose first call is not an ordinary one. Workers read it for each record; only methods of this
    class change it.
    """

    def __init__(
        self,
        source: TakenRecords,
        lanes: LaneQueue,
        clock: AbstractEventLoop,
        reactions: BacklogReactions,
    ) -> None:
        self._source = source
        self._lanes = lanes
        self._reactions = reactions
        self._assembler = BatchAssembler(clock, self)
        self._retries = RetryQueue(clock, self)
        self.attempts: dict[Item, AttemptState] = {}
        # Partitions that a failure has paused until resume(), with the offset tracker of that time.
        self._paused_by_failure: dict[TopicPartition, tuple[int, FailurePause]] = {}
        # Partitions that are paused until a failed item succeeds.
        self._probed_pauses: dict[TopicPartition, ProbedPause] = {}
        # The offset tracker that each lost partition had.
        self._lost: dict[TopicPartition, int | None] = {}
        self._stopping = False
        self._batch_orderings: dict[TopicPartition, HandlerOrdering] = {}

    # -- put -------------------------------------------------------------------------------------

    def put_for_batches(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        options: BatchOptions,
        ordering: HandlerOrdering,
    ) -> None:
        """Collect records of one partition for batches."""
        self._batch_orderings[partition] = ordering
        self._assembler.put(partition, records, options, one_at_a_time=ordering.one_batch_at_a_time)

    def batch_assembled(self, partition: TopicPartition, batch: HandlerBatch) -> None:
        """Put a batch into lanes."""
        ordering = self._batch_orderings[partition]
        self._lanes.put(partition, [batch], ordering.lane_keys, ordering.limiter)
        self._reactions.entries_ready()

    def fail_when_taken(self, record: Record, error: BaseException) -> None:
        """Before a put: the first attempt of this record fails with ``error``, without a call."""
        self.attempts[record] = AttemptState(0, error, self.handler_of(record))

    def choose_handler(self, record: Record, handler: Handler, error: BaseException | None) -> None:
        """Before a put: ``handler`` gets this record; with an ``error``, the first attempt fails,
        and the policy of ``handler`` decides."""
        self.attempts[record] = AttemptState(0, error, handler)

    def handler_of(self, item: Item) -> Handler | None:
        """The handler that was chosen for an item; None if its topic has only one."""
        state = self.attempts.get(item)
        return None if state is None else state.handler

    def handler_at(self, partition: TopicPartition, offset: int) -> Handler | None:
        """The handler that was chosen for the record at this offset; None if it is unknown."""
        for item, state in self.attempts.items():
            if item.topic_partition == partition and first_unfinished_offset(item) == offset:
                return state.handler
        return None

    def put_failed_result(self, item: Item, state: AttemptState, ordering: HandlerOrdering) -> bool:
        """Put an item again whose call has returned, and whose result could not be published.

        ``state`` has the error, which is handled when the item is taken. Returns False, without
        effect, if its partition stops, was lost, or a seek has moved its position.
        """
        partition = item.topic_partition
        is_current = self._lanes.tracker_of(partition) == item.tracker_id
        is_lost = self._lost.get(partition) == item.tracker_id
        if is_lost or not is_current or not self.may_retry(item):
            return False
        self.attempts[item] = state
        self._lanes.put(partition, (item,), ordering.lane_keys, ordering.limiter)
        return True

    def trace(self, records: Iterable[Record]) -> None:
        """Before a put: the first calls of these records are traced."""
        self.attempts |= dict.fromkeys(records, TRACED)

    # -- attempts --------------------------------------------------------------------------------

    def calls_of(self, item: Item) -> int:
        """How many calls were made for an item, including a running one."""
        state = self.attempts.get(item)
        return 1 if state is None else state.calls

    def may_retry(self, item: Item) -> bool:
        """Whether a failed item may wait for another attempt: not while its partition stops."""
        return not (
            self._stopping
            or self.is_paused_by_failure(item)
            or self._source.is_revoking(item.topic_partition)
        )

    def retry_later(self, entry: Entry, delay: float, calls: int) -> None:
        """Call an entry again after ``delay`` seconds; its lane waits. ``calls`` were made."""
        self.attempts.setdefault(entry[1], AttemptState(calls))
        self._retries.put(entry, delay)

    def retry_due(self, entry: Entry) -> None:
        """Let an entry start whose wait is over."""
        pause = self._probed_pauses.get(entry[0].partition)
        state = self.attempts.get(entry[1])
        if pause is not None and pause.is_probe(entry[1]):
            pause.attempt_due()
            self._lanes.requeue_in_pause(entry)
        elif state is not None and state.unsent is not None:
            self.write_again(entry)
        else:
            self._lanes.requeue(entry)
        self._reactions.entries_ready()

    def limiter_permits(self, limiter: HandlerLimiter) -> None:
        """A rate limit permits further calls: let entries start that wait for it."""
        self._lanes.queue_permitted(limiter)
        self._reactions.entries_ready()

    def retry_started(self, item: Item) -> None:
        """The next attempt begins."""
        self._retries.attempt_started(item)

    def send_next(self, entry: Entry, calls: int, unsent: Unsent | None = None) -> None:
        """Let a worker write a failed record, or the unsent records of a batch, to another topic.

        ``unsent`` is the record. A revocation waits for the write.
        """
        state = self.attempts.setdefault(entry[1], AttemptState(calls))
        if unsent is not None:
            state.send_elsewhere(unsent)
        self._lanes.requeue(entry, limited=False)

    def hold(
        self,
        entry: Entry,
        calls: int,
        unsent: Unsent | None = None,
        *,
        delay: float | None = None,
    ) -> None:
        """Hold a failed record that cannot be written now, until :meth:`write_again` or for
        ``delay`` seconds; its lane waits. ``calls`` of its handler were made."""
        state = self.attempts.setdefault(entry[1], AttemptState(calls))
        state.calls = calls
        if unsent is not None:
            state.send_elsewhere(unsent)
        if delay is None:
            self._retries.hold(entry)
        else:
            self._retries.put(entry, delay)

    def is_held(self, item: Item) -> bool:
        """Whether a failed record waits: its partition is neither released nor lost."""
        return item in self._retries

    def is_paused(self, item: Item) -> bool:
        """Whether the item's partition is paused."""
        return self._source.is_paused(item.topic_partition)

    def write_again(self, entry: Entry) -> None:
        """Let a worker write a held record. A revocation waits for the write."""
        if self.is_held(entry[1]):
            self._retries.attempt_started(entry[1])
            self._lanes.requeue(entry, limited=False)
            self._reactions.entries_ready()

    def forget_attempts(self, item: Item) -> None:
        """The item needs no further attempt."""
        self.attempts.pop(item, None)

    def _has_started(self, item: Item) -> bool:
        state = self.attempts.get(item)
        return state is not None and state.has_started

    # -- ends ------------------------------------------------------------------------------------

    def batch_ended(self, batch: HandlerBatch) -> None:
        """A batch is done or abandoned: the next batch of the partition may be handled."""
        self._assembler.batch_ended(batch)

    def abandon(self, item: Item) -> None:
        """Abandon an item that does not run: it is not done."""
        self.forget_attempts(item)
        for record in unfinished_records(item):
            self._source.abandon(record)
        if isinstance(item, HandlerBatch):
            self.batch_ended(item)

    def give_back(self, item: Item) -> None:
        """Abandon the records of an item whose call still runs; its end has no effect."""
        self._source.abandon_all(unfinished_records(item))

    def abandon_lane(self, entry: Entry) -> None:
        """Abandon a started entry, and the items behind it in its lane."""
        item = entry[1]
        if isinstance(item, HandlerBatch):
            self._abandon_each(self._assembler.drop(entry[0].partition))
        self.abandon(item)
        self._abandon_each(self._lanes.drop_lane(entry))

    def abandon_retries(self, partition: TopicPartition | None = None) -> None:
        """Abandon the items that wait for another attempt, of a partition or of all."""
        for entry in self._retries.remove(partition):
            self.abandon_lane(entry)
        # No probe is left that could end these pauses.
        for paused in [partition] if partition is not None else list(self._probed_pauses):
            pause = self._probed_pauses.pop(paused, None)
            if pause is not None and not pause.by_user and not self._stopping:
                self._source.resume_after_failure(paused)

    def abandon_queued(self) -> None:
        """Abandon every item that does not run."""
        for partition in self._assembler.partitions():
            self._abandon_each(self._assembler.drop(partition))
        self.abandon_retries()
        self._abandon_each(self._lanes.drop_all())

    def _abandon_each(self, items: Iterable[Item]) -> None:
        for item in items:
            self.abandon(item)

    def _forget(self, items: Iterable[Item]) -> None:
        for item in items:
            self.forget_attempts(item)
            if isinstance(item, HandlerBatch):
                self.batch_ended(item)

    # -- partitions ------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """Every partition for which items were put."""
        return list(dict.fromkeys([*self._lanes.partitions(), *self._assembler.partitions()]))

    def revocation_announced(self, partition: TopicPartition) -> bool:
        """Drop items that have not started, and abandon items between two attempts. A pause ends.

        Running items end. Unstarted records below the offset that ``TakenRecords.droppable_from``
        returns, and before the last started one, are still handled: a gap. Returns whether there is
        one; :meth:`drop_gap` drops it.
        """
        self._lanes.resume(partition)
        records = self._unstarted(partition)
        first = self._source.droppable_from(partition, records) if records else 0
        self._stop_partition(partition, first)
        self._lanes.run_longest_lane_last(partition)
        return first > 0 and bool(self._unstarted(partition))

    def drop_gap(self, partition: TopicPartition) -> None:
        """Drop what is left of a gap. Running items end."""
        self._stop_partition(partition, 0)

    def _unstarted(self, partition: TopicPartition) -> list[Record]:
        """The records of the partition's current tracker that no call has received."""
        items = self._lanes.unstarted(partition, self._has_started)
        queued = [record for item in items for record in unfinished_records(item)]
        tracker_id = self._lanes.tracker_of(partition)
        collected = self._assembler.collected(partition)
        return queued + [record for record in collected if record.tracker_id == tracker_id]

    def _stop_partition(self, partition: TopicPartition, droppable_from: int) -> None:
        self._lanes.resume(partition)
        self._drop_unstarted(partition, droppable_from)
        self.abandon_retries(partition)
        # Dropped entries may have kept others waiting in a limiter.
        self._reactions.entries_ready()

    def _drop_unstarted(self, partition: TopicPartition, droppable_from: int | None = None) -> None:
        """Drop unstarted items from ``droppable_from`` on, and those after the last started one;
        None drops only these, and what is in no batch."""
        last_started = self._lanes.last_started(partition)
        beyond = last_started + 1
        first = beyond if droppable_from is None else min(beyond, droppable_from)
        dropped = [
            *self._lanes.drop_unstarted_from(
                partition, first, first_unfinished_offset, self._has_started
            ),
            *self._assembler.drop(partition, 0 if droppable_from is None else first),
        ]
        if not dropped:
            return
        # A batch that is kept may have records after the last started one.
        kept = self._lanes.unstarted(partition, self._has_started)
        last_started = max((last_started, *(item.offset for item in kept)))
        # Only records of the current offset tracker can be given back: the others were delivered
        # before a seek.
        tracker_id = max(item.tracker_id for item in dropped)
        current = [item for item in dropped if item.tracker_id == tracker_id]
        # A batch may have records from both sides if some of them are read again.
        records = [record for item in current for record in unfinished_records(item)]
        gaps = [record for record in records if record.offset <= last_started]
        rest = [record.offset for record in records if record.offset > last_started]
        self._forget(current)
        self._abandon_each(item for item in dropped if item.tracker_id != tracker_id)
        if rest:
            self._source.drop_after(partition, min(rest) - 1)
        if gaps:
            self._source.abandon_all(gaps)

    def seek(self, partition: TopicPartition) -> None:
        """A seek has moved the partition's position: abandon the items that do not run."""
        self._abandon_each(self._assembler.drop(partition))
        self.abandon_retries(partition)
        self._abandon_each(self._lanes.drop_partition(partition))
        self._reactions.entries_ready()

    def pause_by_user(self, partition: TopicPartition) -> None:
        """The user pauses this partition: start no item of it until :meth:`resume`.

        Records after the last started one are given back to the source, which delivers them again:
        they would leave less room for other partitions. Ignored during a revocation.
        """
        if self._stopping or self._source.is_revoking(partition):
            return
        probed = self._probed_pauses.get(partition)
        if probed is not None:
            probed.pause_by_user()
            if not probed.probing:
                self._retries.stop_timer(probed.probe)
        self._pause_lanes(partition)

    def _pause_lanes(self, partition: TopicPartition) -> None:
        self._drop_unstarted(partition)
        self._lanes.pause(partition)
        self._reactions.entries_ready()

    def resume(self, partition: TopicPartition) -> None:
        """End a user's or a failure's pause, and retry the items that wait for a probe."""
        self._paused_by_failure.pop(partition, None)
        pause = self._probed_pauses.pop(partition, None)
        self._lanes.resume(partition)
        if pause is not None:
            if not pause.probing:
                self._retries.stop_timer(pause.probe)
                self._lanes.requeue(pause.probe)
            for entry in pause.waiting:
                self._lanes.requeue(entry)
        self._reactions.entries_ready()

    def failure_pauses(self) -> list[FailurePause]:
        """Why partitions are paused: until a failed item succeeds, or until :meth:`resume`."""
        until_resumed = [
            reason
            for partition, (_, reason) in self._paused_by_failure.items()
            if self._source.is_paused(partition)
        ]
        return [*(pause.reason for pause in self._probed_pauses.values()), *until_resumed]

    def pause_until_success(self, entry: Entry, reason: FailurePause) -> bool:
        """Start no item of this failed entry's partition until another attempt at it succeeds.

        The attempt begins after ``reason.probe_after`` seconds. Of several such entries of a
        partition, only the first is retried. Returns whether the partition was not paused before.
        """
        partition = entry[0].partition
        self.attempts.setdefault(entry[1], AttemptState(reason.attempts))
        pause = self._probed_pauses.get(partition)
        if pause is None:
            by_user = self._source.is_paused(partition)
            self._probed_pauses[partition] = ProbedPause(entry, reason, by_user=by_user)
            if by_user:
                self._retries.hold(entry)
                return False
            self._source.pause_after_failure(unfinished_records(entry[1])[0])
            self._pause_lanes(partition)
        elif not pause.is_probe(entry[1]):
            pause.wait(entry)
            self._retries.hold(entry)
            return False
        else:
            pause.attempt_failed(reason)
        if pause is not None and pause.by_user:
            self._retries.hold(entry)
        else:
            self._retries.put(entry, reason.probe_after)
        return pause is None

    def attempt_succeeded(self, item: Item) -> bool:
        """The item needs no further attempt: a pause until it succeeds ends. Returns whether it has
        ended one."""
        self.forget_attempts(item)
        partition = item.topic_partition
        pause = self._probed_pauses.get(partition)
        if pause is not None and pause.is_probe(item) and not pause.by_user:
            self._source.resume_after_failure(partition)
            self.resume(partition)
            return True
        return False

    def is_paused_by_failure(self, item: Item) -> bool:
        """Whether a failure has paused the item's partition, and the user has not resumed it."""
        partition = item.topic_partition
        tracker_id, _ = self._paused_by_failure.get(partition, (None, None))
        return tracker_id == item.tracker_id and self._source.is_paused(partition)

    def pause_after_failure(self, item: Item, reason: FailurePause) -> None:
        """Start no item of this item's partition, which stays assigned, until :meth:`resume`."""
        partition = item.topic_partition
        # The items that wait for a probe are abandoned below.
        self._probed_pauses.pop(partition, None)
        self._paused_by_failure[partition] = item.tracker_id, reason
        self._source.pause_after_failure(unfinished_records(item)[0])
        self._stop_partition(partition, 0)
        self._abandon_each(self._lanes.drop_partition(partition))

    def drain(self) -> bool:
        """The consumer stops: start only items of gaps, as before a revocation.

        Running items end. Returns whether there are gaps; :meth:`stop` drops them.
        """
        self._stopping = True
        found = False
        for partition in self.partitions():
            if self.revocation_announced(partition):
                found = True
            else:
                self._drop_never_started(partition)
        return found

    def stop(self) -> None:
        """The consumer stops: start no item, including items that are put later.

        Running items end.
        """
        self._stopping = True
        for partition in self.partitions():
            self._stop_partition(partition, 0)
            self._drop_never_started(partition)

    def _drop_never_started(self, partition: TopicPartition) -> None:
        """Also items that were delivered before a seek."""
        self._abandon_each(self._lanes.drop_unstarted(partition, self._has_started))

    def lose(self, partition: TopicPartition) -> None:
        """The partition is lost: forget the items that do not run."""
        self._lost[partition] = self._lanes.tracker_of(partition)
        self._probed_pauses.pop(partition, None)
        self._lanes.resume(partition)
        self._assembler.drop(partition)
        for entry in self._retries.remove(partition):
            self._forget([entry[1], *self._lanes.drop_lane(entry)])
        self._forget(self._lanes.drop_partition(partition))
        self._paused_by_failure.pop(partition, None)
