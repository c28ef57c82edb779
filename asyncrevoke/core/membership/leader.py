"""What the leader of a classic group does between JoinGroup and SyncGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.assignor import Assignor, Member, RebalanceProtocol
from asyncrevoke.core.assignors.ownership import repair
from asyncrevoke.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_subscription,
    encode_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.core.outbox import Outbox
    from asyncrevoke.protocol.messages import JoinGroupMember


class Leadership:
    """The members of one generation, as its leader sees them."""

    def __init__(
        self,
        outbox: Outbox,
        generation: int,
        assignor: Assignor,
        members: Sequence[JoinGroupMember],
    ) -> None:
        self._outbox = outbox
        self.generation = generation
        self._assignor = assignor
        self._members = [
            Member(member.member_id, member.group_instance_id, self._read(member))
            for member in members
        ]
        self.topics = frozenset(
            topic for member in self._members for topic in member.subscription.topics
        )

    def _read(self, member: JoinGroupMember) -> Subscription:
        try:
            return decode_subscription(member.metadata)
        except MalformedMemberData as error:
            self._outbox.emit(
                "error",
                "a member's subscription cannot be read; it is assigned nothing",
                member=member.member_id,
                problem=str(error),
            )
            return Subscription(topics=())

    def assign(
        self, partitions: Callable[[str], tuple[int, ...] | None]
    ) -> tuple[tuple[str, bytes], ...]:
        """Each member's encoded assignment; a topic that does not exist has no partitions."""
        known = {topic: found for topic in sorted(self.topics) if (found := partitions(topic))}
        plan = self._assignor.assign(known, self._members)
        if RebalanceProtocol.COOPERATIVE in self._assignor.protocols:
            plan, violations = repair(plan, self._members)
            for violation in violations:
                self._outbox.emit(
                    "error",
                    "the assignor gave away a partition that another member still owns",
                    assignor=self._assignor.name,
                    violation=str(violation),
                )
        return tuple(
            (member.member_id, encode_assignment(plan.get(member.member_id, ())))
            for member in self._members
        )
