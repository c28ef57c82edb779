"""The owners of a session's records: its handlers, and its task groups."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncrevoke.client.model import (
        BlockingRecord,
        FailurePause,
        Outage,
        PollResult,
        Record,
        TopicPartition,
        UnwrittenRecords,
    )
    from asyncrevoke.client.runtime.session.status import RunningCall


class RecordOwner:
    """Runs tasks on records, and is informed at once when their partitions are lost.

    Base of :class:`HandlerRunner` and :class:`TrackedTaskGroup`, which override what they need.
    """

    # Whether it gets the result of each step, before the user does.
    observes_results = False

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are lost: cancel the calls on their records."""
        raise NotImplementedError

    def lose_records(self, is_lost: Callable[[Record], bool]) -> None:
        """Locks of acquired records have passed: cancel the calls all of whose records are lost."""

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The positions of the partitions were changed: do not start records from before."""
        raise NotImplementedError

    def pause_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no record of the partitions until they are resumed."""

    def resume_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """The user has resumed the partitions: start records of them again."""
        raise NotImplementedError

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are released without an announcement: start no handler, and let those that
        run, and all that was submitted to a task group, end."""

    def observe(self, batch: PollResult) -> None:
        """A step is about to return this result."""

    def unwritten(self) -> Iterable[UnwrittenRecords]:
        """The failed records that are held until another topic takes them."""
        raise NotImplementedError

    def outages(self) -> Iterable[Outage]:
        """The servers that do not respond to decoders and encoders."""
        return ()

    def name_of(self, partition: TopicPartition, offset: int) -> str | None:
        """The name of the handler or function that has a record; None if unknown."""
        raise NotImplementedError

    def failure_pauses(self) -> Iterable[FailurePause]:
        """The partitions that are paused until failed records succeed, and why."""
        return ()

    def running(self) -> Iterable[RunningCall]:
        """The calls of handlers that have not ended."""
        return ()


class RecordOwners:
    """All owners, to be informed one by one about the partitions of their records."""

    def __init__(self) -> None:
        self._owners: WeakSet[RecordOwner] = WeakSet()
        self._groups: WeakSet[RecordOwner] = WeakSet()

    def __iter__(self) -> Iterator[RecordOwner]:
        return iter(list(self._owners))

    def add(self, owner: RecordOwner) -> bool:
        """Add an owner. Returns whether it sees each result, as task groups do."""
        self._owners.add(owner)
        if owner.observes_results:
            self._groups.add(owner)
        return owner.observes_results

    def observe(self, result: PollResult) -> None:
        """A step is about to return this result."""
        if self._groups:
            for group in self._groups:
                group.observe(result)

    def name_of(self, record: BlockingRecord) -> str | None:
        """The handler or function that has a record; None if unknown."""
        for owner in self._owners:
            name = owner.name_of(record.topic_partition, record.offset)
            if name is not None:
                return name
        return None
