"""The status of the assigned partitions at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.assignment import Assignment


class PartitionStatus(Value, frozen=True):
    """One assigned partition.

    ``revoking`` is ``"requested"`` until a step has announced it, ``"draining"`` while records are
    in flight, ``"committing"`` until its last commit is acknowledged, empty if it stays.
    ``oldest`` is the lowest offset in flight, None without one. ``lag`` is the high watermark of
    the last fetch minus the position, None before the first fetch.
    """

    partition: TopicPartition
    revoking: str
    paused: bool
    in_flight: int
    oldest: int | None
    position: int | None
    committed: int | None
    lag: int | None


def partition_statuses(assignment: Assignment) -> tuple[PartitionStatus, ...]:
    """The status of each assigned partition."""
    return tuple(
        _status(instance, in_flight, assignment.position(instance))
        for instance, in_flight in assignment.returned().items()
    )


def _status(instance: PartitionInstance, in_flight: int, position: int | None) -> PartitionStatus:
    return PartitionStatus(
        instance.partition,
        _revoking(instance),
        instance.paused,
        in_flight,
        instance.oldest_in_flight if in_flight else None,
        position,
        instance.committed_offset,
        None if position is None else instance.lag(position),
    )


def _revoking(instance: PartitionInstance) -> str:
    if instance.state is InstanceState.REVOKE_REQUESTED:
        return "requested"
    if instance.state is InstanceState.COMMITTING:
        return "committing"
    return "draining" if instance.revoking else ""
