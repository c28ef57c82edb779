"""What we told the group that we own, what it then granted, and what follows from the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.partition.instance import PartitionInstance
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.core.partition.assignment import Assignment


class Change(NamedTuple):
    """What a new assignment means for what we hold."""

    # We said that we own these, and are not to: until we join again without them nobody gets them,
    # even if they were released while the JoinGroup was parked.
    must_go: frozenset[TopicPartition]
    going: list[PartitionInstance]  # live ones that must go, or whose topic we have dropped
    withdrawn: list[PartitionInstance]  # on their way out, and ours again
    stray: list[str]  # topics that were not in the subscription that we sent


class OwnedAndGranted:
    """The two sides of one generation of a classic member."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._owned: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        # What the group takes for ours: nobody else gets it before we join without it.
        self._believed: frozenset[TopicPartition] = frozenset()
        # What the newest assignment gives us: a partition of it that is released comes back.
        self.granted: frozenset[TopicPartition] = frozenset()

    def told(self, owned: Iterable[TopicPartition], topics: frozenset[str]) -> None:
        """This is what our JoinGroup says."""
        self._owned = self._believed = frozenset(owned)
        self._topics = topics

    def assigned(self, assigned: Iterable[TopicPartition], topics: frozenset[str]) -> Change:
        """The answer to it; ``topics`` are those that we want by now."""
        given = self._given(assigned)
        self.granted = frozenset(tp for tp in given if tp.topic in topics)
        must_go = self._owned - given
        return Change(
            must_go=must_go,
            going=[
                instance
                for instance in self._assignment.live()
                if instance.partition in must_go or instance.partition.topic not in topics
            ],
            withdrawn=[i for i in self._assignment.revoking() if i.partition in self.granted],
            stray=sorted({tp.topic for tp in given} - self._topics),
        )

    def refuse(self, assigned: Iterable[TopicPartition]) -> None:
        """We are leaving: nothing of the answer is taken."""
        self._given(assigned)

    def _given(self, assigned: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        given = frozenset(assigned)
        self._believed |= given
        return given

    @property
    def released(self) -> frozenset[TopicPartition]:
        """What the group takes for ours and we do not hold; what was lost alone is among it."""
        return self._believed - self._assignment.partitions()

    def add_granted(self) -> list[PartitionInstance]:
        """Start an instance of everything that is granted and not live."""
        return self._assignment.add(tp for tp in sorted(self.granted) if tp not in self._assignment)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """We do not want these any more."""
        self.granted -= frozenset(partitions)

    def grant_nothing(self) -> None:
        """Nothing is granted any more."""
        self.granted = frozenset()
