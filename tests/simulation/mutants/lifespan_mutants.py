"""Cores with one bug each in the lifespans of partitions; see :mod:`.mutant`."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from simulation.members.consumer_style import Progress
from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import many_partitions_and_unequal_drains

from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.partition.assignment import Lifespans
from asyncrevoke.client.core.partition.completion_map import encode
from asyncrevoke.client.core.position.seek import Seeking

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from simulation.schedules.schedule import Schedule

    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.model import Record, TopicPartition


def states_of_slow_partitions(progress: Progress, schedule: Schedule) -> Schedule:
    """Partitions with states are revoked while some of their records take long."""
    return dataclasses.replace(many_partitions_and_unequal_drains(schedule), lifespans=progress)


_STORES_OFFSETS = partial(states_of_slow_partitions, Progress.OFFSET)
_STORES_MAPS = partial(states_of_slow_partitions, Progress.MAP)


def gaps_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The gap of a slow key is dropped although an offset alone may be stored."""

    def droppable_from(
        _self: ReturnedRecords, _partition: TopicPartition, _unstarted: Sequence[Record]
    ) -> int:
        return 0

    patch.setattr(ReturnedRecords, "droppable_from", droppable_from)


def gaps_are_dropped_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """The same, and the lifespan does not learn that records after the offset are done."""

    def has_completed_beyond(_self: Core, _partition: TopicPartition) -> bool:
        return False

    gaps_are_dropped(patch)
    patch.setattr(Core, "has_completed_beyond", has_completed_beyond)


def seeks_ignore_maps(patch: pytest.MonkeyPatch) -> None:
    """A lifespan's seek delivers what the map of its state lists."""
    seek = Seeking.seek

    def without_map(
        self: Seeking,
        now: float,
        partition: TopicPartition,
        offset: int,
        _completed: CompletionMap | None = None,
    ) -> None:
        seek(self, now, partition, offset)

    patch.setattr(Seeking, "seek", without_map)


def maps_are_cut(patch: pytest.MonkeyPatch) -> None:
    """A stored map has as much room as one in a commit."""

    def complete(tracker: OffsetTracker) -> str:
        runs = tracker.completed_runs()
        return encode(tracker.commit_point, runs, tracker.leader_epoch, 20).metadata

    patch.setattr(CommittedMaps, "complete", staticmethod(complete))


def released_before_the_exit(patch: pytest.MonkeyPatch) -> None:
    """A partition is released before its lifespan has stored the state."""
    begin = Lifespans.exit

    def has_exited(self: Lifespans, instance: PartitionInstance, *, drained: bool) -> bool:
        begin(self, instance, drained=drained)
        return True

    patch.setattr(Lifespans, "exit", has_exited)


def delivered_before_the_entry(patch: pytest.MonkeyPatch) -> None:
    """Records are delivered before the lifespan is entered."""
    positioned = Lifespans.positioned

    def entered_at_once(self: Lifespans, instance: PartitionInstance, offset: int) -> None:
        positioned(self, instance, offset)
        self.entered(instance.instance_id)

    patch.setattr(Lifespans, "positioned", entered_at_once)


MUTANTS = [
    Mutant(
        "a gap is dropped although a lifespan stores an offset",
        gaps_are_dropped,
        ("I21",),
        tweak=_STORES_OFFSETS,
    ),
    Mutant(
        "a gap is dropped, and the lifespan stores an offset before what is done",
        gaps_are_dropped_without_a_word,
        ("I21",),
        tweak=_STORES_OFFSETS,
    ),
    Mutant(
        "a lifespan's seek ignores the completion map",
        seeks_ignore_maps,
        ("I19", "I21"),
        tweak=_STORES_MAPS,
    ),
    Mutant("a stored completion map is cut", maps_are_cut, ("I21",), tweak=_STORES_MAPS),
    Mutant(
        "a partition is released before its lifespan has exited",
        released_before_the_exit,
        ("I11", "I21"),
        tweak=_STORES_MAPS,
    ),
    Mutant(
        "records are delivered before their lifespan is entered",
        delivered_before_the_entry,
        ("I11", "I21"),
        tweak=_STORES_OFFSETS,
    ),
]
