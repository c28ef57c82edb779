"""An application that pauses partitions for a while."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.members.application_events import ApplicationEvents
    from simulation.members.member import SimulatedMember

    from asyncrevoke.client.model import TopicPartition


class PausedPartitions:
    """What one application has paused."""

    def __init__(self, member: SimulatedMember, events: ApplicationEvents) -> None:
        self._member = member
        self._events = events

    def pause(self, choice: int, seconds: float) -> None:
        """Pause one of the partitions, and resume it later if it is still there."""
        assigned = sorted(self._member.core.assignment.partitions())
        if assigned:
            partition = assigned[choice % len(assigned)]
            self._events.paused(self._member, partition, True)
            self._member.core.seeking.pause(self._member.now, [partition])
            self._member.take_effects()
            self._member.later(seconds, partial(self._resume, partition))

    def _resume(self, partition: TopicPartition) -> None:
        if partition in self._member.core.seeking.paused():
            self._events.paused(self._member, partition, False)
            self._member.core.seeking.resume(self._member.now, [partition])
            self._member.take_effects()
