"""What we told the group that we own, what it then granted, and what follows from the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.partition.instance import PartitionInstance
from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.core.partition.assignment import Assignment


class AssignmentChange(NamedTuple):
    """What a new assignment means for what we hold."""

    # We said that we own these, and are not to: until we join again without them nobody gets them,
    # even if they were released while JoinGroup was held back.
    must_go: frozenset[TopicPartition]
    going: list[PartitionInstance]  # live ones that must go, or whose topic we have dropped
    withdrawn: list[PartitionInstance]  # on their way out, and ours again
    stray: list[str]  # topics that were not in the subscription that we sent


class OwnedAndAssigned:
    """The two sides of one generation of a classic member."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._owned: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        # What the group takes for ours: nobody else gets it before we join without it.
        self.owned_per_coordinator: frozenset[TopicPartition] = frozenset()
        # What the newest assignment gives us: a partition of it that is released comes back.
        self.assigned: frozenset[TopicPartition] = frozenset()

    def report(self, owned: Iterable[TopicPartition], topics: frozenset[str]) -> None:
        """This is what our JoinGroup says."""
        self._owned = self.owned_per_coordinator = frozenset(owned)
        self._topics = topics

    def apply(self, assigned: Iterable[TopicPartition], topics: frozenset[str]) -> AssignmentChange:
        """The answer to it; ``topics`` are those that we want by now."""
        given = self._note_assigned(assigned)
        self.assigned = frozenset(tp for tp in given if tp.topic in topics)
        must_go = self._owned - given
        return AssignmentChange(
            must_go=must_go,
            going=[
                instance
                for instance in self._assignment.live()
                if instance.partition in must_go or instance.partition.topic not in topics
            ],
            withdrawn=[i for i in self._assignment.revoking() if i.partition in self.assigned],
            stray=sorted({tp.topic for tp in given} - self._topics),
        )

    def ignore(self, assigned: Iterable[TopicPartition]) -> None:
        """We are leaving: nothing of the answer is taken."""
        self._note_assigned(assigned)

    def _note_assigned(self, assigned: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        given = frozenset(assigned)
        self.owned_per_coordinator |= given
        return given

    @property
    def released(self) -> frozenset[TopicPartition]:
        """What the group takes for ours and we do not hold; what was lost alone is among it."""
        return self.owned_per_coordinator - self._assignment.partitions()

    def add_assigned(self) -> list[PartitionInstance]:
        """Start an instance of everything that is granted and not live."""
        return self._assignment.add(
            tp for tp in sorted(self.assigned) if tp not in self._assignment
        )

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """We do not want these any more."""
        self.assigned -= frozenset(partitions)

    def clear_assigned(self) -> None:
        """Nothing is granted any more."""
        self.assigned = frozenset()
