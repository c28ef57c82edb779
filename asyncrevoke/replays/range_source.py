"""The source of a replay's handlers: the records of a range, without a group."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.model import PollResult, Record, TopicPartition
from asyncrevoke.client.runtime.session.membership_guard import NoMembership
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.replays.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.client.core.commit.returned_records import InFlightLimits
    from asyncrevoke.replays.opened_handlers import OpenedHandlers
    from asyncrevoke.replays.result_rows import ResultRows


class NextRecords(Protocol):
    """Reads the next records of a range.

    Implemented by :meth:`asyncrevoke.spark.reading.range_reader.RangeReader.read` and by
    :meth:`asyncrevoke.dead_letters.origin_reader.OriginReader.read`.
    """

    def __call__(self) -> Awaitable[Sequence[Record]]:
        """The next records; none at the end."""
        ...


class RangeSource:
    """Implements :class:`RecordSource` for a replay: polling ends when all records are done.

    ``read`` returns the next records of ``partition``, or of several partitions if that is None. No
    partition is revoked.
    """

    def __init__(
        self,
        partition: TopicPartition | None,
        read: NextRecords,
        done: ResultRows,
        max_in_flight: int,
    ) -> None:
        self.membership = NoMembership()
        self._partition = partition
        self._read = read
        self._done = done
        self._limit = max_in_flight
        self._in_flight = 0
        self._stopping = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ReplayError | None = None
        self._ended = False
        self._paused = False

    @property
    def in_flight(self) -> int:
        """Records that were delivered and are not done."""
        return self._in_flight

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping

    @property
    def finished(self) -> bool:
        """Whether all records were delivered and are done."""
        return self._ended and not self._in_flight and self._failure is None

    async def poll(self) -> PollResult:
        """Wait for room, and return the next records; StopAsyncIteration when all are done."""
        await self._done.wait_for_room()
        while not self._stopping and self._in_flight >= (1 if self._ended else self._limit):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._failure is not None:
            raise self._failure
        if self._stopping or self._ended:
            raise StopAsyncIteration
        records = await self._read()
        if not records:
            self._ended = True
            return PollResult({})
        self._in_flight += len(records)
        if self._partition is not None:
            return PollResult({self._partition: records})
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.topic_partition, []).append(record)
        return PollResult(by_partition)

    def stop(self) -> None:
        """Deliver no further records."""
        self._stopping = True
        self._wake()

    def submit(self, record: Record) -> bool:
        """Not supported: only loops of the user submit tasks."""
        raise NotImplementedError(f"handlers alone read a range, no task has {record.offset}")

    def complete(self, record: Record) -> bool:
        """The record is done."""
        self.complete_all((record,))
        return True

    def complete_all(self, records: Sequence[Record]) -> None:
        """The records are done."""
        self._in_flight -= len(records)
        self._done.complete(records)
        self._wake()

    def abandon(self, record: Record) -> None:
        """The record's handler ended without completing it, so the range fails."""
        self.abandon_all((record,))

    def abandon_all(self, records: Sequence[Record]) -> None:
        """These records were not started because the runner stops, so the range fails."""
        self._in_flight -= len(records)
        self._wake()

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """In a replay, no partition is revoked."""
        del partition, unstarted
        return 0

    def revocation_ends_in(self, partition: TopicPartition) -> float | None:
        """In a replay, no partition is revoked."""
        del partition
        return None

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Does nothing: records that were not started fail the range."""
        del partition, offset
        self._in_flight = 0
        self._wake()

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        """Apply the limit of the partition's topic; for several partitions, none."""
        if self._partition is None:
            return
        limit = limits.of_topic(self._partition.topic)
        if limit is not None:
            self._limit = min(self._limit, limit[1])

    def is_revoking(self, partition: TopicPartition) -> bool:
        """In a replay, no partition is revoked."""
        del partition
        return False

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether a failure has paused the partition."""
        del partition
        return self._paused

    def pause_after_failure(self, record: Record) -> None:
        """Fail the replay, because nothing would resume the partition."""
        self._paused = True
        self._failure = ReplayError(
            f"{record.topic_partition} has paused at offset {record.offset} (its handler "
            'is stuck, or has on_error="pause"; the log says why), and a replay never resumes it: '
            'use errors="record", or fix the handler and run the same run_id again'
        )
        self._wake()

    def resume_after_failure(self, partition: TopicPartition) -> None:
        """Does nothing: a pause has failed the replay."""
        del partition

    def awaiting_library(self) -> AbstractContextManager[None]:
        """Does nothing: a replay has no ``max_poll_interval``."""
        return nullcontext()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def handle_all(
    opened: OpenedHandlers,
    partition: TopicPartition | None,
    read: NextRecords,
    outcomes: ResultRows,
) -> None:
    """Run the handlers on all records of ``read``, as a consumer does.

    ``partition`` is the partition of all records; None if there are several. Raises the error that
    stops the handlers, and ReplayError if they stop before the range ends.
    """
    context = replace(opened.context, log=outcomes, call_recorder=outcomes)
    source = RangeSource(partition, read, outcomes, context.max_in_flight)
    await HandlerRunner(source, opened.router, context).run()
    if not source.finished:
        raise ReplayError(f"{partition or 'reading'} has ended before its range did")
