"""What a classic member has reported as owned, what its leader has assigned, and what follows.

An assignment that is invalid or too large assigns no partitions; the membership continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.config.topics import MAX_ASSIGNED
from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.subscription import MalformedMemberData, decode_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance

# A broker stores all assignments of a group in one record, of 1 MiB by default.
_MAX_BYTES = 4 * 2**20
# A leader may know partitions that were created since this member's last metadata.
_MAX_UNKNOWN = 10_000


class ReceivedAssignment(Value, frozen=True):
    """``user_data`` as the leader sent it. ``unreadable``: the reason why nothing of it is used;
    ``ignored``: the part that is not used. None if there is none."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""
    unreadable: str | None = None
    ignored: str | None = None


def read_assignment(
    data: bytes, topics: frozenset[str], cluster: ClusterMetadata
) -> ReceivedAssignment:
    """Decode and check the assignment of a member that subscribes to ``topics``. Never raises."""
    if len(data) > _MAX_BYTES:
        return ReceivedAssignment(unreadable=f"{len(data)} bytes are more than {_MAX_BYTES}")
    try:
        partitions, user_data = decode_assignment(data, max_assigned=MAX_ASSIGNED)
    except MalformedMemberData as error:
        return ReceivedAssignment(unreadable=str(error))
    if len(partitions) > _MAX_UNKNOWN and cluster.last_response_names(topics):
        unknown = [tp for tp in partitions if tp.partition not in cluster.partition_set(tp.topic)]
        if len(unknown) > _MAX_UNKNOWN:
            known = tuple(sorted(frozenset(partitions).difference(unknown)))
            ignored = f"{len(unknown)} partitions that do not exist, such as {unknown[0]}"
            return ReceivedAssignment(known, user_data, ignored=ignored)
    return ReceivedAssignment(partitions, user_data)


class AssignmentChange(Value, frozen=True):
    """What a new assignment means for the partitions of this member."""

    # Reported as owned, and not assigned: until the next join without them, no member gets them,
    # even if they were released while JoinGroup was delayed.
    must_go: frozenset[TopicPartition]
    going: list[PartitionInstance]  # live ones of must_go, and of topics that were dropped
    withdrawn: list[PartitionInstance]  # being revoked, and assigned again
    added: list[PartitionInstance]  # new ones, of what is assigned and had none
    stray: list[str]  # topics that were not in the subscription


class OwnedAndAssigned:
    """The owned and the assigned partitions of a classic member."""

    def __init__(self, assignment: Assignment, *, eager: bool) -> None:
        self._assignment = assignment
        self._eager = eager
        self._owned: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        # What the group counts as this member's: no other gets it before a join without it.
        self._owned_per_coordinator: frozenset[TopicPartition] = frozenset()
        # The newest assignment: a partition of it that is released is started anew.
        self.assigned: frozenset[TopicPartition] = frozenset()

    def report(self, topics: frozenset[str]) -> tuple[TopicPartition, ...]:
        """What JoinGroup lists as owned: it is sent now, with a subscription to ``topics``."""
        owned = frozenset[TopicPartition]() if self._eager else self._assignment.partitions()
        self._owned = self._owned_per_coordinator = owned
        self._topics = topics
        return tuple(sorted(owned))

    def apply(self, assigned: Iterable[TopicPartition], topics: frozenset[str]) -> AssignmentChange:
        """Take an assignment, and start an instance of each partition without one; ``topics`` are
        those of the present subscription."""
        given = frozenset(assigned)
        self._owned_per_coordinator |= given
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
            added=self._assignment.add(
                tp for tp in sorted(self.assigned) if tp not in self._assignment
            ),
            stray=sorted({tp.topic for tp in given} - self._topics),
        )

    def ignore(self, assigned: Iterable[TopicPartition]) -> None:
        """Start nothing of an assignment: the member is leaving."""
        self._owned_per_coordinator |= frozenset(assigned)

    @property
    def released(self) -> frozenset[TopicPartition]:
        """Partitions that the group counts as this member's and that are released or lost."""
        return self._owned_per_coordinator - self._assignment.partitions()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """No longer want these."""
        self.assigned -= frozenset(partitions)

    def clear_assigned(self) -> None:
        """Nothing is assigned any more."""
        self.assigned = frozenset()
