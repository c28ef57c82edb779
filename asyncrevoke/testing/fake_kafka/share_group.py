"""The coordinator of a share group (KIP-932): members, their epochs, and who fetches what.

Assignments are computed at intervals, so that a new member's first response has none. They are sent
once, and again to a heartbeat that has the topics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.protocol.messages import JOIN_EPOCH, LEAVE_EPOCH, ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicIdPartition,
)
from asyncrevoke.testing.fake_kafka.share_leader import LONGEST_MEMBER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock


@dataclass(slots=True)
class ShareMember:
    """``assigned`` is what the last response that has an assignment has told it."""

    topics: tuple[str, ...]
    epoch: int
    previous_epoch: int
    session: Alarm
    target: tuple[TopicIdPartition, ...] = ()
    told: tuple[TopicIdPartition, ...] | None = None


@dataclass(slots=True)
class ShareCoordinatorOptions:
    """Times in seconds."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    assignment_interval: float = 1.0
    max_size: int = 200
    # Whether the group has this type; a group of another type refuses its members.
    is_share_group: bool = True


@dataclass(slots=True)
class _Assignments:
    computed_at: float = float("-inf")
    due: Alarm | None = None
    initialized: dict[TopicIdPartition, None] = field(default_factory=dict)


class ShareGroup:
    """``partitions_of`` lists the partitions of a topic that exists, by its name."""

    def __init__(
        self,
        clock: Clock,
        options: ShareCoordinatorOptions,
        partitions_of: Callable[[str], Iterable[TopicIdPartition]],
    ) -> None:
        self.options = options
        self.members: dict[str, ShareMember] = {}
        self.epoch = 0
        self._clock = clock
        self._partitions_of = partitions_of
        self._assignments = _Assignments()

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        """Whether it was ever assigned."""
        return partition in self._assignments.initialized

    def remove(self, member_id: str) -> None:
        """A member has left, or its session has timed out. Its records stay locked."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.session.cancel()
            self.changed()

    def forget(self) -> None:
        """The coordinator has lost all members; they join again."""
        for member_id in list(self.members):
            self.remove(member_id)

    def changed(self) -> None:
        """Members or topics have changed: compute assignments, at most once an interval."""
        self.epoch += 1
        assignments = self._assignments
        if assignments.due is None or assignments.due.action is None:
            at = max(self._clock.now, assignments.computed_at) + self.options.assignment_interval
            assignments.due = self._clock.at(at, self._assign)

    def _assign(self) -> None:
        self._assignments.computed_at = self._clock.now
        names = sorted({topic for member in self.members.values() for topic in member.topics})
        for member in self.members.values():
            member.target = ()
        for name in names:
            readers = [m for _, m in sorted(self.members.items()) if name in m.topics]
            partitions = list(self._partitions_of(name))
            self._assignments.initialized.update(dict.fromkeys(partitions))
            # Each partition has a member, and each member a partition.
            for number in range(max(len(readers), len(partitions)) if partitions else 0):
                reader = readers[number % len(readers)]
                partition = partitions[number % len(partitions)]
                if partition not in reader.target:
                    reader.target = (*reader.target, partition)
        for member in self.members.values():
            if member.epoch != self.epoch:
                member.previous_epoch, member.epoch = member.epoch, self.epoch

    # --- requests --------------------------------------------------------------------------------

    def heartbeat(self, message: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """Respond to a ShareGroupHeartbeat."""
        error = self._check(message)
        if error is not ErrorCode.none:
            return ShareGroupHeartbeatResponse(error=error, detail="the group is not a share group")
        if message.member_epoch == LEAVE_EPOCH:
            self.remove(message.member_id)
            return ShareGroupHeartbeatResponse(error=ErrorCode.none, member_epoch=LEAVE_EPOCH)
        member = self.members.get(message.member_id)
        if member is None:
            member = self._add(message)
        elif message.topics is not None and message.topics != member.topics:
            member.topics = message.topics
            self.changed()
        member.session.cancel()
        member.session = self._watch(message.member_id)
        repeats = message.topics is not None or message.member_epoch == JOIN_EPOCH
        tells = repeats or member.told != member.target
        if tells:
            member.told = member.target
        return ShareGroupHeartbeatResponse(
            error=ErrorCode.none,
            member_epoch=member.epoch,
            heartbeat_interval=self.options.heartbeat_interval,
            assignment=_by_topic(member.target) if tells else None,
        )

    def _check(self, message: ShareGroupHeartbeatRequest) -> ErrorCode:
        joins = message.member_epoch == JOIN_EPOCH
        if not 0 < len(message.member_id) <= LONGEST_MEMBER_ID or (joins and not message.topics):
            return ErrorCode.invalid_request
        if not self.options.is_share_group:
            return ErrorCode.group_id_not_found
        member = self.members.get(message.member_id)
        if member is None:
            if not joins:
                return ErrorCode.unknown_member_id
            if len(self.members) >= self.options.max_size:
                return ErrorCode.group_max_size_reached
            return ErrorCode.none
        if message.member_epoch not in (
            JOIN_EPOCH,
            LEAVE_EPOCH,
            member.epoch,
            member.previous_epoch,
        ):
            return ErrorCode.fenced_member_epoch
        return ErrorCode.none

    def _add(self, message: ShareGroupHeartbeatRequest) -> ShareMember:
        self.changed()
        member = ShareMember(
            topics=message.topics or (),
            epoch=self.epoch,
            previous_epoch=self.epoch,
            session=self._watch(message.member_id),
        )
        self.members[message.member_id] = member
        return member

    def _watch(self, member_id: str) -> Alarm:
        return self._clock.after(self.options.session_timeout, partial(self.remove, member_id))


def _by_topic(partitions: Iterable[TopicIdPartition]) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    numbers: dict[bytes, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic_id, []).append(partition.partition)
    return tuple((topic_id, tuple(found)) for topic_id, found in numbers.items())
