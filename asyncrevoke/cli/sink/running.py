"""Reads a topic, and stores it in a lake."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from asyncrevoke.cli.sink.plan import StorageError
from asyncrevoke.cli.sink.row_runs import rows_by_partition
from asyncrevoke.cli.sink.store import Closed
from asyncrevoke.client.errors import (
    ConfigError,
    IllegalStateError,
    PartitionLostError,
    UnreadableRecordError,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.runtime.loop.signals import DrainOnSignals
from asyncrevoke.consumer import Consumer, RebalanceListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from asyncrevoke.cli.sink.parquet_file import ParquetFile
    from asyncrevoke.cli.sink.plan import OpenFile, SinkPlan
    from asyncrevoke.cli.sink.progress import Progress
    from asyncrevoke.cli.sink.store import Store
    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.runtime.arrow.arrow_steps import ArrowBatch, ArrowIterator

T = TypeVar("T")

# How long a step waits for more rows, and how many it returns at most.
_STEP_WAIT = 0.2
_STEP_ROWS = 262_144
# How often to look at positions: where all is stored already, and after the markers of
# transactions, no step returns.
_POSITIONS_CHECK = 0.5


class _Writing:
    """The rows of an open file: those in memory, and the file that has the others."""

    def __init__(self) -> None:
        self.waiting: list[ArrowRecordBatch] = []
        self.file: ParquetFile | None = None


class Period(NamedTuple):
    """The times of the records to store, ``until`` excluded; None: no limit."""

    since: datetime | None = None
    until: datetime | None = None


class Sink(RebalanceListener):
    """Stores the records of a topic. Positions come from the lake, not from committed offsets; of a
    partition of which nothing is stored, reading begins at the period.

    Offsets are committed after their records are stored, for tools that show the lag: of a
    partition of which all is stored the present position, which is also after markers of
    transactions.
    """

    def __init__(
        self,
        topic: str,
        columns: Sequence[str],
        store: Store,
        plan: SinkPlan,
        progress: Progress,
        options: ConsumerOptions,
        period: Period,
    ) -> None:
        self._topic = topic
        self._columns = list(columns)
        self._store = store
        self._plan = plan
        self._progress = progress
        self._period = period
        # Where the period ends, by the number of the partition.
        self._stops: dict[int, int] = {}
        options = {**options, "commit_mode": "manual", "isolation_level": "read_committed"}
        self._consumer = Consumer(listener=self, **options)
        # By the identity of the open file, which belongs to one assignment.
        self._writing: dict[int, _Writing] = {}
        self._dropped: list[_Writing] = []
        # Since the partition was assigned.
        self._committed: dict[TopicPartition, int] = {}

    async def run(self, *, until_end: bool) -> None:
        """Store records until a signal, or up to the present ends of the partitions.

        Raises StorageError, ConfigError if the topic does not exist or the lake is another topic's,
        and the errors of a loop.
        """
        consumer = self._consumer
        with DrainOnSignals(lambda _: consumer.stop(), consumer.config.close_timeout):
            async with consumer:
                try:
                    if not await consumer.partitions_for_topic(self._topic):
                        raise ConfigError(f"there is no topic {self._topic}")
                    await _on_disk(self._store.open)
                    consumer.subscribe(self._topic)
                    await self._loop(until_end=until_end)
                finally:
                    for partition in self._plan.partitions:
                        self._drop(partition)
                    await asyncio.to_thread(self._discard)

    # --- assignments -----------------------------------------------------------------------------

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        """Continue where the stored records end."""
        begins = await self._consumer.beginning_offsets(*assigned)
        ends = await self._consumer.end_offsets(*assigned)
        since, until = await self._offsets_at_period(assigned, ends)
        for partition in sorted(assigned):
            first = await _on_disk(self._store.stored, partition)
            self._drop(partition)
            begin = begins[partition]
            stop = until.get(partition)
            self._plan.assigned(partition, first, ends[partition], stop)
            if stop is not None:
                self._stops[partition.partition] = stop
            start = begin if first else max(begin, since.get(partition, begin))
            if 0 < first < begin:
                self._progress.say(
                    f"{partition}: offsets {first} to {begin - 1} were deleted from the topic "
                    "before they were stored"
                )
            try:
                self._consumer.seek(partition, max(first, start))
            except IllegalStateError:
                self._drop(partition)  # it is being revoked, or lost

    async def _offsets_at_period(
        self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> list[dict[TopicPartition, int]]:
        """Where the period begins and ends in each partition; empty without a limit."""
        found: list[dict[TopicPartition, int]] = []
        for time in self._period:
            at = {}
            if time is not None:
                at = await self._consumer.offsets_for_times(dict.fromkeys(partitions, time))
            found.append(
                {tp: ends[tp] if first is None else first.offset for tp, first in at.items()}
            )
        return found

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        """Drop what is open. Of a revoked partition all is stored; of a lost one some may not be,
        and its new owner reads that again."""
        for partition in revoked:
            self._drop(partition)

    def _drop(self, partition: TopicPartition) -> None:
        self._committed.pop(partition, None)
        file = self._plan.file(partition)
        if file is not None:
            self._plan.released(partition)
            self._drop_file(file)

    def _drop_file(self, file: OpenFile) -> None:
        writing = self._writing.pop(id(file), None)
        if writing is not None:
            # Another call may be writing it: the loop discards it later.
            self._dropped.append(writing)

    def _discard(self) -> None:
        for writing in self._dropped:
            if writing.file is not None:
                writing.file.discard()
        self._dropped.clear()

    # --- the loop --------------------------------------------------------------------------------

    async def _loop(self, *, until_end: bool) -> None:
        needed = [name for name in ("partition", "offset") if name not in self._columns]
        columns = [*self._columns, *needed]
        batches = self._consumer.arrow_batches(columns, _STEP_ROWS, _STEP_WAIT)
        failure: UnreadableRecordError | None = None
        while not (until_end and self._plan.is_read(self._positions())):
            try:
                batch = await self._next(batches)
            except StopAsyncIteration:
                break
            except UnreadableRecordError as error:
                failure = error
                break
            if batch is not None:
                await self._add(batch.records)
            await self._store_due(batch.to_be_revoked if batch is not None else ())
            self._progress.show(self._consumer.lag())
        await self._store_files(self._plan.not_stored())
        await self._commit_positions()
        if failure is not None:
            raise failure

    async def _next(self, batches: ArrowIterator) -> ArrowBatch | None:
        """The next batch; None if there is none before a file is due or positions are looked at."""
        due = self._plan.time_left(_now())
        try:
            async with asyncio.timeout(
                _POSITIONS_CHECK if due is None else min(due, _POSITIONS_CHECK)
            ):
                return await anext(batches)
        except TimeoutError:
            return None

    def _positions(self) -> dict[TopicPartition, int]:
        found = {each: self._consumer.position(each) for each in self._plan.partitions}
        return {partition: at for partition, at in found.items() if at is not None}

    async def _add(self, records: ArrowRecordBatch) -> None:
        added: list[OpenFile] = []
        unknown: list[TopicPartition] = []
        for run in rows_by_partition(records, self._columns, self._stops):
            partition = TopicPartition(self._topic, run.partition)
            position = self._consumer.position(partition)
            if position is None or position <= run.last:
                continue  # lost since a batch before this one of the same step
            file = self._plan.file(partition)
            if file is None:
                unknown.append(partition)  # kept, as its revocation was withdrawn
                continue
            file.add(run.first, run.last, run.rows.num_rows, run.rows.nbytes, _now())
            self._writing.setdefault(id(file), _Writing()).waiting.append(run.rows)
            self._progress.read(run.rows.num_rows)
            added.append(file)
        for file in added:
            if self._plan.needs_group(file):
                await self._write_group(file)
        if unknown:
            await self.on_partitions_assigned(frozenset(unknown))

    async def _write_group(self, file: OpenFile) -> None:
        """Write the rows in memory to the file. Another assignment may begin meanwhile."""
        writing = self._writing.get(id(file))
        if writing is not None and writing.waiting:
            waiting, writing.waiting = writing.waiting, []
            file.group_written(await _on_disk(self._write, file, writing, waiting))

    def _write(self, file: OpenFile, writing: _Writing, waiting: Sequence[ArrowRecordBatch]) -> int:
        if writing.file is None:
            writing.file = self._store.create(file.partition, file.first)
        return writing.file.write(waiting)

    # --- storing ---------------------------------------------------------------------------------

    async def _store_due(self, revoked: Iterable[TopicPartition]) -> None:
        due = self._plan.due(_now())
        for file in map(self._plan.file, revoked):
            if file is not None and file.rows and file not in due:
                due.append(file)
        if due:
            await self._store_files(due)
        await self._commit_positions()
        if self._dropped:
            await asyncio.to_thread(self._discard)

    async def _store_files(self, files: Sequence[OpenFile]) -> None:
        """Let readers see these."""
        closed: list[tuple[OpenFile, Closed, _Writing]] = []
        for file in files:
            await self._write_group(file)
            writing = self._writing.get(id(file))
            if writing is None or writing.file is None:
                continue  # lost meanwhile
            metadata = {"asyncrevoke.first": str(file.first), "asyncrevoke.next": str(file.next)}
            size = await _on_disk(writing.file.finish, metadata)
            made = Closed(file.partition, file.first, file.next, file.rows, size, writing.file)
            closed.append((file, made, writing))
        # After a failure these files stay: readers may see them.
        closed = [each for each in closed if self._writing.pop(id(each[0]), None) is not None]
        if not closed:
            return
        refused = await _on_disk(self._store.publish, [made for _, made, _ in closed])
        behind: list[TopicPartition] = []
        for file, made, writing in closed:
            if made.partition in refused:
                self._dropped.append(writing)
                behind.append(made.partition)
                continue
            self._progress.stored(made)
            file.stored()
        owned = self._consumer.assignment()
        if again := frozenset(behind) & owned:
            # Another member, which has lost them, was faster.
            await self.on_partitions_assigned(again)

    async def _commit_positions(self) -> None:
        """Commit the positions in partitions of which all is stored."""
        stored: dict[TopicPartition, int] = {}
        positions, owned = self._positions(), self._consumer.assignment()
        for partition, at in positions.items():
            file = self._plan.file(partition)
            if file is None or file.rows or partition not in owned:
                continue
            stop = self._stops.get(partition.partition, at)
            reached = min(at, max(stop, file.first))
            if reached != self._committed.get(partition):
                stored[partition] = reached
        # The records are stored: the next owner continues after them whatever is committed.
        with suppress(PartitionLostError):
            if stored:
                await self._consumer.commit(stored)
                self._committed |= stored


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _on_disk(call: Callable[..., T], *arguments: object) -> T:
    """Wait for this call in a thread. An OSError is a StorageError."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except OSError as error:
        raise not_written(error) from error


def not_written(error: OSError) -> StorageError:
    """The error of an application for that of a file system."""
    where = f"{error.filename}: " if error.filename is not None else ""
    why = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"the lake cannot be written: {where}{why}; what is not stored will be read again"
    )
