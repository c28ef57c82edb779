"""Errors that steps of the iterator raise once, and which records come before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.partition.instance import InstanceState
from asyncrevoke.client.errors import LogTruncationError, NoOffsetError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.model import TopicPartition


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
