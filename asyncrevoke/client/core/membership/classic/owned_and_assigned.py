"""What a classic member has reported as owned, what it was assigned, and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class AssignmentChange(Value, frozen=True):
    """What a new assignment means for the partitions of this member."""

    # Reported as owned, and not assigned: until the next join without them, no member gets them,
    # even if they were released while JoinGroup was delayed.
    must_go: frozenset[TopicPartition]
    going: list[PartitionInstance]  # live ones of must_go, and of topics that were dropped
    withdrawn: list[PartitionInstance]  # being revoked, and assigned again
    stray: list[str]  # topics that were not in the subscription


class OwnedAndAssigned:
    """The owned and the assigned partitions of a classic member."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._owned: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        # What the group counts as this member's: no other gets it before a join without it.
        self.owned_per_coordinator: frozenset[TopicPartition] = frozenset()
        # The newest assignment: a partition of it that is released is started anew.
        self.assigned: frozenset[TopicPartition] = frozenset()

    def report(self, owned: Iterable[TopicPartition], topics: frozenset[str]) -> None:
        """Set what JoinGroup lists as owned."""
        self._owned = self.owned_per_coordinator = frozenset(owned)
        self._topics = topics

    def apply(self, assigned: Iterable[TopicPartition], topics: frozenset[str]) -> AssignmentChange:
        """Take an assignment; ``topics`` are those of the present subscription."""
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
        """Start nothing of an assignment: the member is leaving."""
        self._note_assigned(assigned)

    def _note_assigned(self, assigned: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        given = frozenset(assigned)
        self.owned_per_coordinator |= given
        return given

    @property
    def released(self) -> frozenset[TopicPartition]:
        """Partitions that the group counts as this member's and that are released or lost."""
        return self.owned_per_coordinator - self._assignment.partitions()

    def add_assigned(self) -> list[PartitionInstance]:
        """Start an instance of every assigned partition without one."""
        return self._assignment.add(
            tp for tp in sorted(self.assigned) if tp not in self._assignment
        )

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """No longer want these."""
        self.assigned -= frozenset(partitions)

    def clear_assigned(self) -> None:
        """Nothing is assigned any more."""
        self.assigned = frozenset()
