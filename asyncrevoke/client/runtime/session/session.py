"""An entered consumer that reads alone or in a consumer group: its steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import AsyncRevokeError, IllegalStateError
from asyncrevoke.client.model import PollResult, Record, TopicPartition
from asyncrevoke.client.record_parts import offsets_of
from asyncrevoke.client.runtime.hooks.application_calls import is_called_by, would_wait
from asyncrevoke.client.runtime.loop.driver import PollBoundary
from asyncrevoke.client.runtime.session.entered_session import EnteredSession
from asyncrevoke.client.runtime.session.membership_guard import ConsumerMembership
from asyncrevoke.client.runtime.session.record_iterator import RecordIterator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.client.core.commit.returned_records import InFlightLimits
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.core.fetch.delayed_topic import TopicDelay
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.reader_records import RecordReader
    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.runtime.session.parts import SessionParts
    from asyncrevoke.client.runtime.session.record_owners import RecordOwner

# Seconds after which a step yields to the event loop, so that a loop that never awaits does not
# prevent heartbeats.
_YIELD_INTERVAL = 0.005


class Session(EnteredSession):
    """The session of a consumer that owns its partitions.

    Also the :class:`~asyncrevoke.handlers.scheduling.record_source.RecordSource` of handlers and
    task groups.
    """

    # No record has a lock of its own.
    locks: None = None

    def __init__(self, parts: SessionParts, core: Core) -> None:
        super().__init__(parts)
        self.core = core
        self._tracker = core.returned_records
        self.lifespans = parts.hooks.lifespans
        self.transactions = parts.hooks.transactions
        self._decoders = parts.decoders
        self._stepping = False
        self._yielded_at = 0.0
        self.membership = ConsumerMembership(core, parts.driver)
        self._reader: RecordIterator | None = None
        self._delays = False
        # The journal's recorder, while a loop of the user's takes the records.
        self._loop_recorder = parts.hooks.recorder

    def start(self) -> None:
        """Begin to connect."""
        if self.recorder is not None:
            self.recorder.session_opened(self.core, self._driver.fail, self.core.position)
        super().start()

    def delay(self, delays: Mapping[str, TopicDelay]) -> None:
        """Deliver the records of these topics when they are due; see ``Core.delay``."""
        self._delays = bool(delays)
        self.core.delay(delays)

    # --- positions -------------------------------------------------------------------------------

    def seek(
        self, partition: TopicPartition, offset: int, completed: CompletionMap | None = None
    ) -> None:
        """Read this offset next, without what is ``completed`` after it. Records of the partition
        that were not started are dropped."""
        self.call(self.core.seek, partition, offset, completed)
        for owner in self._owners:
            owner.drop((partition,))

    async def seek_to(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        """Like :meth:`seek`, to the offset of a timestamp, which is looked up."""

        def begin(now: float) -> int:
            call_id = self.core.seek_to(now, partitions, timestamp)
            for owner in self._owners:
                owner.drop(partitions)
            return call_id

        await self.ask(begin)

    def pause_by_user(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver and start no records of these until the user resumes them."""
        self.call(self.core.seeking.pause, partitions)
        for owner in self._owners:
            owner.pause_by_user(partitions)

    def resume_by_user(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver and start records of these again."""
        self.call(self.core.seeking.resume, partitions)
        for owner in self._owners:
            owner.resume_by_user(partitions)

    async def unsubscribe(self) -> None:
        """Drain, commit, release, and leave the group."""
        if is_called_by(self.membership):
            raise would_wait("unsubscribe()", "call it in another task")

        def begin(now: float) -> int:
            partitions = sorted(self.core.assignment.partitions())
            for owner in self._owners:
                owner.leave(partitions)
            if (writer := self.transactions.writer) is not None:
                # Leaving waits for the records of tasks.
                for record in writer.waiting_records(partitions):
                    self._tracker.submit(record)
            return self.core.unsubscribe(now)

        await self.ask(begin)

    # --- steps -----------------------------------------------------------------------------------

    async def step(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - a result, not an error, ends it
        max_records: int | None = None,
        *,
        reader: RecordReader | None = None,
        large: LargePoll | None = None,
    ) -> PollResult | None:
        """One step; None when the consumer is stopping. See ``Consumer.poll``.

        With a ``reader``, that one returns the records to the user. For ``large`` see
        ``Core.poll``.
        """
        self.check_loop()
        if self._stepping:
            raise IllegalStateError(
                "another task is waiting for the next batch of this consumer: one loop per "
                "consumer; share the work with consumer.task_group() or with handlers"
            )
        self._stepping = True
        self.shutdown.step_begun()
        try:
            self._reads.report()
            if self._loop_recorder is not None:
                self._loop_recorder.step_begun(counts=True)
            if self.recorder is not None and self.recorder.behind:
                await self.recorder.flush()
            result = await self._step(timeout, max_records, reader, large)
        except asyncio.CancelledError:
            self._driver.call(self.core.poller.interrupt)
            raise
        finally:
            self._stepping = False
        if result is None:
            self.shutdown.loop_ended()
        else:
            self.shutdown.step_returned()
            self._owners.observe(result)
            if reader is not None:
                # Its records are reported when it returns them to the user.
                result = PollResult({}, result.to_be_revoked, result.lost)
            if self.observers is not None:
                self.observers.on_poll(result)
            if self._loop_recorder is not None:
                self._loop_recorder.batch_returned(result)
        return result

    async def _step(
        self,
        wait: float | None,
        max_records: int | None,
        reader: RecordReader | None,
        large: LargePoll | None,
    ) -> PollResult | None:
        driver = self._driver
        started = driver.now()
        deadline = None if wait is None else started + wait
        if started - self._yielded_at > _YIELD_INTERVAL:
            # Before anything is taken, so that a cancellation here costs nothing.
            self._yielded_at = started
            await asyncio.sleep(0)
        expired = False
        while True:
            if (error := self.listener.take_error()) is not None:
                raise error
            if driver.error is not None:
                raise driver.error
            driver.wake.clear()
            # Nothing is awaited from here to the return: records that were taken are delivered.
            result = self._poll(
                max_records, reader, large, expired=expired, until_moved=wait is None
            )
            if result is not None:
                return result
            if self.core.poller.ended:
                return None
            expired = not await driver.wait_until(deadline)
            self._yielded_at = driver.now()

    def _poll(
        self,
        max_records: int | None,
        reader: RecordReader | None,
        large: LargePoll | None,
        *,
        expired: bool,
        until_moved: bool,
    ) -> PollResult | None:
        try:
            return self._driver.call(
                self._poll_core,
                max_records,
                reader,
                large,
                expired=expired,
                until_moved=until_moved,
            )
        finally:
            if self.core.owes_plan:
                # Planning and writing fetch requests takes time: deliver the records first.
                self._driver.call_soon(self.core.plan_owed)
            else:
                self._driver.cancel_call()

    def _poll_core(
        self,
        now: float,
        max_records: int | None,
        reader: RecordReader | None,
        large: LargePoll | None,
        *,
        expired: bool,
        until_moved: bool,
    ) -> PollResult | None:
        if self._delays:
            # The event loop's clock stops while the machine is suspended.
            self.core.wall_clock.set_offset(self.wall_clock() - now)
        try:
            return self.core.poll(
                now,
                max_records,
                expired=expired,
                records_first=True,
                until_moved=until_moved,
                reader=reader,
                large=large,
            )
        except AsyncRevokeError:
            raise
        except Exception as error:
            self._driver.fail(error)
            failure = self._driver.error
            raise (error if failure is None else failure) from error

    # --- RecordSource ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Records that were delivered and are not completed, dropped or lost."""
        return self.core.assignment.in_flight

    @property
    def stopping(self) -> bool:
        """Whether there are no further records."""
        return self.core.poller.stopping or self.shutdown.begun

    async def poll(self, reader: RecordReader | None = None) -> PollResult:
        """One step; StopAsyncIteration when the consumer is stopping. See :meth:`step`."""
        result = await self.step(reader=reader)
        if result is None:
            raise StopAsyncIteration
        return result

    def submit(self, record: Record) -> bool:
        """A task takes this record; False if its partition is lost or released."""
        if self._loop_recorder is not None:
            self._loop_recorder.record_submitted(record)
        return self._tracker.submit(record)

    def complete(self, record: Record) -> bool:
        """The record is completed; False if its partition is lost or released."""
        if self._loop_recorder is not None:
            self._loop_recorder.record_completed(record)
        if (writer := self.transactions.writer) is not None:
            owned = self.core.owns(record)
            writer.records_finished((record,))
            return owned
        return self._driver.call_for_record(self._tracker.complete, record)

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are completed; those of lost or released partitions are ignored. With
        ``processing="exactly_once"`` they are when their transaction is committed."""
        if (writer := self.transactions.writer) is not None:
            writer.records_finished(records)
            return
        self._driver.call_for_record(self._tracker.complete_all, records)

    def complete_slices(self, slices: Sequence[Sequence[Record]]) -> bool:
        """The records of an Arrow batch are completed; False if the partitions of all are lost or
        released."""
        if self._loop_recorder is not None:
            for records in slices:
                for record in records:
                    self._loop_recorder.record_completed(record)
        by_tracker: dict[int, list[int]] = {}
        for records in slices:
            for tracker_id, offsets in offsets_of(records):
                by_tracker.setdefault(tracker_id, []).extend(offsets)
        owned = [self.core.assignment.instance_of(tracker_id) for tracker_id in by_tracker]
        self._driver.call_for_record(self._tracker.complete_offsets, by_tracker)
        return not owned or any(owned)

    def abandon(self, record: Record) -> None:
        """The handler of this record has ended without completing it."""
        self.abandon_all((record,))

    def abandon_all(self, records: Sequence[Record]) -> None:
        """These records were not started, or their handlers have ended without completing them."""
        if (writer := self.transactions.writer) is not None:
            writer.records_abandoned(records)
        self._driver.call_for_record(self._tracker.abandon_all, records)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """From which offset on a revoke may drop records that were not started."""
        return self._tracker.droppable_from(partition, unstarted)

    def revocation_ends_in(self, partition: TopicPartition) -> float | None:
        """Seconds until the partition is lost unless it is released; None without a deadline."""
        return self.core.revocation_ends_in(self._driver.now(), partition)

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Drop the delivered records after ``offset``; none of them was started."""
        self._driver.call(self._tracker.drop_after, partition, offset)

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        """From now on these limits apply besides ``max_in_flight``."""
        self._tracker.set_limits(limits)

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether the revocation of this partition was requested and not withdrawn."""
        return self.core.is_revoking(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by the user or by a failure."""
        return partition in self.core.seeking.paused()

    def pause_after_failure(self, record: Record) -> None:
        """Deliver no further records of this record's partition until the user resumes it."""
        if self.core.owns(record):
            self._driver.call(self.core.seeking.pause, [record.topic_partition])

    def resume_after_failure(self, partition: TopicPartition) -> None:
        """Deliver records of this partition again, if it is assigned and paused."""
        if self.is_paused(partition):
            self._driver.call(self.core.seeking.resume, [partition])

    def awaiting_library(self) -> AbstractContextManager[None]:
        """Inside, the caller awaits the library; see :class:`PollBoundary`."""
        return PollBoundary(self.core, self._driver)

    # --- lifespans -------------------------------------------------------------------------------

    def lifespan_entered(self, instance_id: int) -> None:
        """The records of this assignment of a partition may be delivered."""
        self._driver.call(self.core.lifespan_entered, instance_id)

    def lifespan_exited(self, instance_id: int) -> None:
        """This assignment of a partition may be committed for the last time and released."""
        self._driver.call(self.core.lifespan_exited, instance_id)

    def lifespan_failed(self, instance_id: int, reason: str) -> None:
        """This assignment of a partition ends without a final commit."""
        self._driver.call(self.core.lifespan_failed, instance_id, reason)

    # --- counting --------------------------------------------------------------------------------

    def add_owner(self, owner: RecordOwner) -> None:
        """Inform this owner of records about lost partitions; a task group also of each result."""
        if self._owners.add(owner):
            # The next step counts the records that no task has.
            self._tracker.track(one_by_one=True, next_poll_completes=True)

    def records(self) -> RecordIterator:
        """The iterator over single records."""
        if self._reader is None:
            self._reader = RecordIterator(self, self.membership, self._loop_recorder)
            self._reads.read_by(self._reader)
        return self._reader

    @property
    def is_observed(self) -> bool:
        """Whether observers get the records of each step."""
        return self.observers is not None

    def decode_columns(
        self,
        names: Sequence[str],
        at_once: int,
        topics: Callable[[str], bool] | None = None,
    ) -> None:
        """Decode records of these topics (None: of all) to rows of columns from now on, if there
        are batches as they are in the log, and buffer enough for steps that return ``at_once``
        records. If topics are given, rows may be kept: then they keep no buffer of a response."""
        if self._decoders is not None:
            from asyncrevoke.client.columns.column_batches import ColumnBatchDecoder

            decoder = ColumnBatchDecoder(*self._decoders, names, topics, copies=topics is not None)
            self.call(self.core.decode_by, decoder, decoder.grouped, at_once)

    # --- handlers --------------------------------------------------------------------------------

    def wait_for(self, handlers: asyncio.Task[None]) -> None:
        """Let closing wait for the task that runs the handlers."""
        super().wait_for(handlers)
        self._loop_recorder = None
        self._tracker.track(one_by_one=True)
        self.core.poll_for_handlers()
