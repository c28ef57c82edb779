"""The records of a task group, each with the function that was submitted with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.handlers.policy.signature import handler_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.scheduling.record_source import RecordSource


class Task(NamedTuple):
    """A function that was submitted, and its call with the arguments. ``ended`` is set when its
    task has ended. ``has_room``: it counts for ``max_in_flight`` of the group."""

    function: object
    call: Callable[[], Awaitable[object]]
    ended: asyncio.Event | None
    has_room: bool = True


class TaskRecords:
    """The :class:`TakenRecords` of a task group, with the function submitted for each record.

    ``room`` is released once for each record whose task has ended.
    """

    def __init__(self, source: RecordSource, room: asyncio.Semaphore) -> None:
        self._source = source
        self._room = room
        self._tasks: dict[Record, Task] = {}
        self._retries_stopped = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, record: Record) -> bool:
        return record in self._tasks

    def add(
        self,
        record: Record,
        function: object,
        call: Callable[[], Awaitable[object]],
        ended: asyncio.Event | None,
    ) -> None:
        """``function`` was submitted with this record; ``ended`` is set when its task has ended."""
        self._tasks[record] = Task(function, call, ended)

    def task_of(self, record: Record) -> Task:
        """The task of a record that has not ended."""
        return self._tasks[record]

    def add_again(self, record: Record, task: Task) -> None:
        """A task that has ended may be called again: its results are refused."""
        self._tasks[record] = task._replace(ended=None, has_room=False)

    def stop_retries(self) -> None:
        """The group ends: tasks that fail from now on are not retried."""
        self._retries_stopped = True

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The name of the function that was submitted with a record; None if none was."""
        for record, task in self._tasks.items():
            if record.offset == offset and record.topic_partition == partition:
                return handler_name(task.function)
        return None

    def call(self, record: Record, _context: HandlerContext | None = None, /) -> Awaitable[object]:
        """Call the function that was submitted with this record."""
        return self._tasks[record].call()

    def lose(self, partition: TopicPartition, running: Iterable[Item]) -> None:
        """The partition is lost: its tasks have ended, except the ``running`` ones."""
        runs = set(running)
        for record in self._of(partition):
            if record not in runs:
                self._remove(record)

    def _of(self, partition: TopicPartition) -> list[Record]:
        return [record for record in self._tasks if record.topic_partition == partition]

    def _remove(self, record: Record) -> None:
        task = self._tasks.pop(record, None)
        if task is not None:
            if task.has_room:
                self._room.release()
            if task.ended is not None:
                task.ended.set()

    # -- TakenRecords ----------------------------------------------------------------------------

    def complete(self, record: Record) -> bool:
        """The record is done."""
        done = self._source.complete(record)
        self._remove(record)
        return done

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done."""
        self._source.complete_all(records)
        for record in records:
            self._remove(record)

    def abandon(self, record: Record) -> None:
        """The record's task has ended, and the record is not done."""
        self._source.abandon(record)
        self._remove(record)

    def abandon_all(self, records: Sequence[Record]) -> None:
        """These records are not done, and no task of them runs."""
        self._source.abandon_all(records)
        for record in records:
            self._remove(record)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """Ask the source: see :meth:`TakenRecords.droppable_from`."""
        return self._source.droppable_from(partition, unstarted)

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Abandon these records: submitted records cannot be returned to the source."""
        for record in self._of(partition):
            if record.offset > offset:
                self.abandon(record)

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether failed records of the partition are not retried: its revocation is announced, or
        the consumer or the group ends."""
        stopping = self._retries_stopped or self._source.stopping
        return stopping or self._source.is_revoking(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by a failure or by the user."""
        return self._source.is_paused(partition)

    def pause_after_failure(self, record: Record) -> None:
        """Deliver no records of this record's partition, which stays assigned."""
        self._source.pause_after_failure(record)

    def resume_after_failure(self, partition: TopicPartition) -> None:
        """End a pause by :meth:`pause_after_failure`."""
        self._source.resume_after_failure(partition)
