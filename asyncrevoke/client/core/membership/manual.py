"""Partitions without a group: those that the user assigns, or all of the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import FatalError
from asyncrevoke.client.model import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.membership.reactions import MembershipReactions
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.protocol.messages import ErrorCode


class ManualMembership:
    """No JoinGroup and no heartbeats. With a ``group_id`` offsets are committed as by a simple
    consumer, which the coordinator accepts only while the group has no members."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        assignment: Assignment,
        revocation: Revocation,
        reactions: MembershipReactions,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._revocation = revocation
        self._reactions = reactions
        self.state = ClassicState.UNJOINED
        self.confirmed_at: float | None = None
        self.member_at: float | None = None
        self.session = config.session_timeout
        self._topics: frozenset[str] = frozenset()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._leaving = False

    @property
    def member_identity(self) -> GroupMetadata:
        """No member id and no generation."""
        return GroupMetadata(self._config.group_id or "", -1, "", None)

    @property
    def has_epochs(self) -> bool:
        """Whether it is a member of a KIP-848 group."""
        return False

    @property
    def may_commit(self) -> bool:
        """Always, if there is a group to commit to."""
        return self._config.group_id is not None

    def renewed_identity(self, _now: float, _rejected: GroupMetadata) -> None:
        """There is no other identity."""

    def is_current_membership(self, sent: GroupMetadata, _sent_at: float) -> bool:
        """Whether it is the same identity, which never changes."""
        return sent == self.member_identity

    def rejected(self, now: float, error: ErrorCode) -> None:
        """The group has members."""
        self.fail(
            now,
            FatalError(
                f"group {self._config.group_id!r} has members, so it rejects commits of others "
                f"({error.name}); a consumer that uses assign() needs a group_id of its own"
            ),
        )

    def rebalance_seen(self, now: float) -> None:
        """Members are joining this group: the next commit will fail."""

    def assign(self, now: float, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; others are revoked."""
        self.state = ClassicState.STABLE
        self._assigned = frozenset(partitions)
        going = [i for i in self._assignment.live() if i.partition not in self._assigned]
        self._revocation.request(now, going, now + self._config.rebalance_timeout)
        for instance in self._assignment.revoking():
            if instance.partition in self._assigned:
                self._revocation.withdraw(instance)
        added = self._assignment.add(
            tp for tp in sorted(self._assigned) if tp not in self._assignment
        )
        if added:
            self._reactions.partitions_added(now, added)

    def subscribe(self, now: float, topics: frozenset[str]) -> None:
        """Read all partitions of these topics."""
        self._topics = topics
        self.metadata_changed(now)

    def metadata_changed(self, now: float) -> None:
        """Partitions of the topics were added or have gone."""
        if self._topics and not self._leaving:
            self.assign(
                now,
                [
                    TopicPartition(topic, number)
                    for topic in sorted(self._topics)
                    for number in self._cluster.partitions(topic) or ()
                ],
            )

    def rejoin(self, now: float, _reason: str) -> None:
        """There is nothing to join; what exists is assigned again."""
        self.metadata_changed(now)

    def metadata_refreshed(self, now: float) -> None:
        """There is no leader."""

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Release everything; ``group_left`` follows."""
        self._leaving = True
        self._assigned = frozenset()
        self._topics = frozenset()
        self._revocation.leave(now, wait_for_tasks=wait_for_tasks)

    def leave_now(self, now: float) -> None:
        """Everything is lost or released: ``group_left`` follows."""
        self.barrier(now)

    def stop_leaving(self, now: float) -> None:
        """See :meth:`leave_now`."""
        self.barrier(now)

    def barrier(self, now: float) -> None:
        """Nothing is being revoked, says ``Core.after_event``: leaving is over."""
        if self._leaving:
            self._leaving = False
            if self.state is not ClassicState.FATAL:
                self.state = ClassicState.UNJOINED
            self._revocation.membership_begins()
            self._reactions.group_left(now)

    def released(self, now: float, instance: PartitionInstance) -> None:
        """Start a partition anew that was assigned again before it was released."""
        if instance.partition in self._assigned and not self._leaving:
            self._reactions.partitions_added(now, self._assignment.add([instance.partition]))

    def leave_idle(self, now: float) -> None:
        """There is no group to leave."""

    def poll_resumed(self, now: float) -> None:
        """See :meth:`leave_idle`."""

    def stop_sending(self) -> None:
        """There is nothing to stop."""

    def fail(self, now: float, error: FatalError) -> None:
        """The consumer cannot go on."""
        self.state = ClassicState.FATAL
        self._assigned = frozenset()
        self._revocation.lose(now, self._assignment.live(), str(error))
        self._reactions.membership_failed(error)
