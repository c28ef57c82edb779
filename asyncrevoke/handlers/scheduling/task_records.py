"""The records of a task group's tasks, from being submitted to their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.handlers.policy.signature import handler_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard


class _Task(NamedTuple):
    function: object
    call: Callable[[], Awaitable[object]]
    on_end: Callable[[], None] | None


class TaskRecords:
    """A record source in front of another one, that knows what is to be done with each record.

    ``on_end`` is called when a record ends in whatever way. While ``ending`` is set, as while the
    consumer stops, nothing that fails gets a further attempt.
    """

    def __init__(self, source: RecordSource, on_end: Callable[[], None]) -> None:
        self._source = source
        self._on_end = on_end
        self._tasks: dict[Record, _Task] = {}
        self.ending = False

    def __len__(self) -> int:
        return len(self._tasks)

    def add(
        self,
        record: Record,
        function: object,
        call: Callable[[], Awaitable[object]],
        on_end: Callable[[], None] | None,
    ) -> None:
        """This record was submitted, for ``function``."""
        self._tasks[record] = _Task(function, call, on_end)

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The function that was submitted with a record, None if none was."""
        for record, task in self._tasks.items():
            if record.offset == offset and record.topic_partition == partition:
                return handler_name(task.function)
        return None

    def call(self, record: Record, _context: HandlerContext | None = None, /) -> Awaitable[object]:
        """Call what was submitted with this record."""
        return self._tasks[record].call()

    def lose(self, partition: TopicPartition, running: Iterable[Item]) -> None:
        """The partition is lost: its records have ended, but for those that run."""
        runs = set(running)
        for record in self._of(partition):
            if record not in runs:
                self._ended(record)

    def _of(self, partition: TopicPartition) -> list[Record]:
        return [record for record in self._tasks if record.topic_partition == partition]

    def _ended(self, record: Record) -> None:
        task = self._tasks.pop(record, None)
        if task is not None:
            self._on_end()
            if task.on_end is not None:
                task.on_end()

    # -- RecordSource ----------------------------------------------------------------------------

    @property
    def membership(self) -> MembershipGuard:
        """That of the source."""
        return self._source.membership

    @property
    def in_flight(self) -> int:
        """What the source says."""
        return self._source.in_flight

    @property
    def stopping(self) -> bool:
        """What the source says."""
        return self._source.stopping

    async def poll(self) -> PollResult:
        """The user's own loop polls."""
        raise AssertionError("a task group never polls")

    def stop(self) -> None:
        """No further records."""
        self._source.stop()

    def submit(self, record: Record) -> bool:
        """A task is about to hold this record."""
        return self._source.submit(record)

    def complete(self, record: Record) -> bool:
        """The record is done."""
        done = self._source.complete(record)
        self._ended(record)
        return done

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done."""
        self._source.complete_all(records)
        for record in records:
            self._ended(record)

    def abandon(self, record: Record) -> None:
        """The record has ended and is not done."""
        self._source.abandon(record)
        self._ended(record)

    def abandon_all(self, records: Sequence[Record]) -> None:
        """These records were never started, or have ended and are not done."""
        self._source.abandon_all(records)
        for record in records:
            self._ended(record)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """What the source says."""
        return self._source.droppable_from(partition, unstarted)

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """These were submitted, and are not started: given up, as they cannot be given back."""
        for record in self._of(partition):
            if record.offset > offset:
                self.abandon(record)

    def limit_in_flight(self, limit_of: Callable[[str], tuple[str, int] | None]) -> None:
        """Bound what is in flight by topic."""
        self._source.limit_in_flight(limit_of)

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Also while the consumer or the group ends: it is all one to what waits for a retry."""
        return self.ending or self._source.stopping or self._source.is_revoking(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by whomever."""
        return self._source.is_paused(partition)

    def pause(self, record: Record) -> None:
        """Return nothing more of this record's partition; it stays ours."""
        self._source.pause(record)

    def parked(self) -> AbstractContextManager[None]:
        """Inside, the caller awaits the library."""
        return self._source.parked()
