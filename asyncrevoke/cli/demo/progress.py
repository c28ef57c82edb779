"""The progress of a group, for the live view and for detecting that all records are handled."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncrevoke.cli.demo.member.handler_log import (
    Abandoned,
    Assigned,
    Draining,
    Ended,
    Event,
    Released,
    Started,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.cli.demo.group_result import Produced


@dataclass(slots=True)
class MemberProgress:
    """A member, according to its log. ``state`` is shown to users."""

    name: str
    state: str = "starting"
    partitions: set[int] = field(default_factory=set[int])
    draining: int = 0
    in_flight: int = 0
    handled: int = 0

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.state in {"left", "killed"}


@dataclass(slots=True)
class PartitionProgress:
    """A partition: its last owner, the number of records without a call (``waiting``) and of
    running calls, and the time of the last call."""

    owner: str = ""
    waiting: int = 0
    in_flight: int = 0
    last_call: float = 0.0


class GroupProgress:
    """Counts records by the members' logs and the producer's acknowledgements."""

    def __init__(self, partitions: int) -> None:
        self.members: dict[str, MemberProgress] = {}
        self.partitions = {number: PartitionProgress() for number in range(partitions)}
        self.produced = 0
        self._begun: set[tuple[int, int]] = set()
        self._returned: set[tuple[int, int]] = set()
        self._running: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)

    @property
    def handled(self) -> int:
        """The number of records whose handler has returned at least once."""
        return len(self._returned)

    def member(self, name: str) -> MemberProgress:
        """The member of this name. Added if it is new."""
        return self.members.setdefault(name, MemberProgress(name))

    def append(self, records: Iterable[Produced]) -> None:
        """Add records that a broker has acknowledged."""
        for record in records:
            self.produced += 1
            if (record.partition.partition, record.offset) not in self._begun:
                self.partitions[record.partition.partition].waiting += 1

    def ended(self, name: str, state: str) -> None:
        """A member's process has ended, with its running handlers."""
        member = self.member(name)
        for partition, _ in self._running.pop(name, {}):
            self.partitions[partition].in_flight -= 1
        member.state, member.in_flight, member.draining = state, 0, 0
        member.partitions.clear()

    def update(self, events: Iterable[Event]) -> None:
        """Add new events of a member's log."""
        for event in events:
            member = self.member(event.member)
            match event:
                case Started():
                    self._start(member, event)
                case Ended() | Abandoned():
                    self._end(member, event)
                case Assigned():
                    member.state = "running" if member.state == "starting" else member.state
                    member.partitions.update(event.partitions)
                    for number in event.partitions:
                        self.partitions[number].owner = member.name
                case Released():
                    member.partitions.difference_update(event.partitions)
                    for number in event.partitions:
                        if self.partitions[number].owner == member.name:
                            self.partitions[number].owner = ""
                case Draining():
                    member.draining = event.count

    def _start(self, member: MemberProgress, event: Started) -> None:
        record = (event.partition, event.offset)
        partition = self.partitions[event.partition]
        self._running[member.name][record] = 1
        member.in_flight += 1
        partition.in_flight += 1
        partition.last_call = max(partition.last_call, event.at)
        if record not in self._begun:
            self._begun.add(record)
            partition.waiting = max(0, partition.waiting - 1)

    def _end(self, member: MemberProgress, event: Ended | Abandoned) -> None:
        record = (event.partition, event.offset)
        if self._running[member.name].pop(record, None) is None:
            return
        member.in_flight -= 1
        self.partitions[event.partition].in_flight -= 1
        if isinstance(event, Ended):
            member.handled += 1
            self._returned.add(record)
