"""The records that one response has acquired from one partition, and the deadlines of their locks.

A lock counts from the time at which the request was sent, so that it ends here before it ends at
the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from asyncrevoke.client.core.share.state_table import (
    RECORD_TRANSITIONS,
    RecordState,
    RecordTransition,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

# The part of a lock after which it is renewed.
_RENEWED_AFTER = 0.5


class HeldRecord(msgspec.Struct, eq=False):
    """An acquired record. ``deadline``: when its lock passes, on the core's clock."""

    acquisition: Acquisition
    offset: int
    delivery_count: int
    deadline: float
    state: RecordState = RecordState.HELD
    # False after the broker has refused to renew the lock of this record.
    is_renewable: bool = True

    def can(self, transition: RecordTransition) -> bool:
        """Whether the table has this transition."""
        return (self.state, transition) in RECORD_TRANSITIONS


class Acquisition:
    """``number`` identifies it among all of this consumer; its records have it.

    ``records`` are those that have not ended, by offset, and lie in ``offsets``. ``node`` is the
    leader that has locked them, ``lock_timeout`` in seconds.
    """

    __slots__ = (
        "acquired_at",
        "lock_timeout",
        "node",
        "number",
        "offsets",
        "partition",
        "records",
        "renew_at",
        "topic",
    )

    def __init__(
        self,
        number: int,
        topic: str,
        partition: TopicIdPartition,
        node: Node,
        sent_at: float,
        lock_timeout: float,
    ) -> None:
        self.number = number
        self.topic = topic
        self.partition = partition
        self.node = node
        self.acquired_at = sent_at
        self.lock_timeout = lock_timeout
        self.records: dict[int, HeldRecord] = {}
        self.offsets = range(0)
        self.renew_at = sent_at + lock_timeout * _RENEWED_AFTER

    def renewed(self, record: HeldRecord, sent_at: float, lock_timeout: float) -> None:
        """The broker has renewed the lock of this record; ``lock_timeout`` may be another one."""
        record.deadline = max(record.deadline, sent_at + lock_timeout)
        self.lock_timeout = lock_timeout

    def to_renew(self, now: float) -> list[HeldRecord]:
        """The records whose lock is to be renewed now. The next renewal is due half a lock
        later."""
        self.renew_at = now + self.lock_timeout * _RENEWED_AFTER
        return [
            record
            for record in self.records.values()
            if record.is_renewable and record.can(RecordTransition.RELEASE)
        ]

    @property
    def deadline(self) -> float:
        """When the first lock of a record passes."""
        return min((record.deadline for record in self.records.values()), default=float("inf"))
