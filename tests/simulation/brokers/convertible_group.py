"""A KIP-848 group with classic members, which becomes a classic group without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from simulation.brokers.simulated_consumer_group import (
    ConsumerGroupOptions,
    ConvertibleMember,
    SimulatedConsumerGroup,
)

from asyncrevoke.client.protocol.messages import ErrorCode, OffsetCommitRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import CommittedGroupOffsets


class ConvertsGroup(Protocol):
    """Converts the group when its last KIP-848 member is removed. Implemented by
    :class:`~simulation.brokers.converting_group.ConvertingGroup`."""

    def member_removed(self, member: ConvertibleMember) -> None:
        """A member was removed; the group epoch has not grown yet."""
        ...


class ConvertibleGroup(SimulatedConsumerGroup):
    """``offsets`` are those of the classic group: they survive a conversion."""

    def __init__(
        self,
        clock: Clock,
        options: ConsumerGroupOptions,
        converter: ConvertsGroup,
        offsets: CommittedGroupOffsets,
    ) -> None:
        super().__init__(clock, options)
        self._converter = converter
        self._offsets = offsets

    @property
    def owners(self) -> dict[TopicPartition, int]:
        """The client that owns each partition, including partitions that it has to revoke."""
        return self._owners

    @property
    def target_epoch(self) -> int:
        """The epoch of the newest target assignment."""
        return self._target_epoch

    def target(self, member: ConvertibleMember) -> frozenset[TopicPartition]:
        """The newest target assignment of a member."""
        return self._target.get(member.member_id, frozenset())

    def adopt(self, generation: int, members: Iterable[ConvertibleMember]) -> None:
        """Become a group with these members and assignments."""
        self.members = {member.member_id: member for member in members}
        self.generation = self._target_epoch = generation
        self._target = {id_: member.assigned for id_, member in self.members.items()}
        self._assigned_at = float("-inf")
        topics = {topic for member in self.members.values() for topic in member.topics}
        self._assigned_by = {topic: self._look_up(topic) for topic in sorted(topics)}
        self._owners = {tp: m.client for m in self.members.values() for tp in sorted(m.assigned)}
        self._since = dict.fromkeys(self._owners, generation)
        for member in self.members.values():
            self.arm_session(member)

    # --- classic members -------------------------------------------------------------------------

    def advance(
        self,
        member: ConvertibleMember,
        topics: tuple[str, ...],
        owned: frozenset[TopicPartition],
        *,
        may_assign: bool,
    ) -> None:
        """Move a classic member one step towards its target. Without ``may_assign``, no new target
        assignment is computed."""
        self._subscribe(member, topics, "")
        if may_assign:
            self._assign()
        if may_assign or self._target_epoch == self.generation:
            self._reconcile(member, owned)
        self.arm_session(member)

    def _is_released(self, member: ConvertibleMember) -> bool:
        return member.is_classic or super()._is_released(member)

    def replace(self, member: ConvertibleMember, client: int, member_id: str) -> ConvertibleMember:
        """A static member has returned, and gets the assignment that it had before."""
        member.protocols, member.session_timeout = (), None
        return super().replace(member, client, member_id)

    def remove(self, member: ConvertibleMember) -> None:
        """Remove a member that has left or whose timer has expired."""
        self._delete(member)
        self._converter.member_removed(member)
        self._bump()

    def _session_timeout_of(self, member: ConvertibleMember) -> float:
        default = super()._session_timeout_of(member)
        return default if member.session_timeout is None else member.session_timeout

    def _arm_rebalance(self, member: ConvertibleMember) -> None:
        if not member.is_classic:
            super()._arm_rebalance(member)

    def _check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        error = super()._check_commit(request)
        if error is ErrorCode.stale_member_epoch and self.members[request.member_id].is_classic:
            return ErrorCode.illegal_generation
        return error
