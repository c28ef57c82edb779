"""All that works on the records of a session: its handlers, and its task groups."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from asyncrevoke.runtime.hooks.running_calls import Calling
from asyncrevoke.runtime.session.record_owner import Naming, Observer, Queueing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.model import BlockingRecord, PollResult, TopicPartition
    from asyncrevoke.runtime.hooks.running_calls import RunningCall
    from asyncrevoke.runtime.session.record_owner import Workers


class RecordOwners:
    """Tells each of them what becomes of the partitions whose records it has."""

    def __init__(self) -> None:
        self._owners: WeakSet[Workers] = WeakSet()
        self._groups: WeakSet[Observer] = WeakSet()

    def add(self, owner: Workers) -> bool:
        """One more; whether it sees each result, as task groups do."""
        self._owners.add(owner)
        if isinstance(owner, Observer):
            self._groups.add(owner)
            return True
        return False

    def observe(self, result: PollResult) -> None:
        """A step is about to return this."""
        if self._groups:
            for group in self._groups:
                group.observe(result)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these is to run any more."""
        for owner in list(self._owners):
            owner.lose(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read elsewhere: nothing begins that has not begun."""
        for owner in list(self._owners):
            owner.drop(partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these begins until they are resumed."""
        for owner in list(self._owners):
            if isinstance(owner, Queueing):
                owner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """They go on."""
        for owner in list(self._owners):
            if isinstance(owner, Queueing):
                owner.resume(partitions)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up without being announced: no handler begins, and those that run are
        waited for. So is all that was submitted to a task group."""
        for owner in list(self._owners):
            if isinstance(owner, Queueing):
                owner.leave(partitions)

    def name_of(self, record: BlockingRecord) -> str | None:
        """The handler or function that has a record, None if nobody knows."""
        for owner in self._owners:
            if isinstance(owner, Naming):
                name = owner.name_of(record.topic_partition, record.offset)
                if name is not None:
                    return name
        return None

    def running(self) -> Iterator[RunningCall]:
        """The calls of handlers that have not ended."""
        for owner in self._owners:
            if isinstance(owner, Calling):
                yield from owner.running()
