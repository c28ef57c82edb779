"""The simulated share group of a consumer under test: what a test does to it (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.testing.opened_session import OpenedSession
    from asyncrevoke.testing.share_cluster import Acknowledgement, ShareCluster
    from asyncrevoke.testing.virtual_time import VirtualTime


class TestedShareGroup:
    """The group has one member, the consumer."""

    __test__ = False

    def __init__(self, cluster: ShareCluster, opened: OpenedSession, passing: VirtualTime) -> None:
        self.opened = opened
        self._cluster = cluster
        self._passing = passing

    def reads_its_share(self) -> bool:
        """Whether the consumer fetches all partitions of its topics."""
        cluster = self._cluster
        members = cluster.share_group.members.values()
        return bool(members) and all(
            cluster.is_fetched(TopicPartition(topic, number))
            for member in members
            for topic in member.topics
            for number in range(len(cluster.topics[topic]))
        )

    def evict(self) -> None:
        """Remove the consumer from the group, as if its session had expired."""
        self._cluster.share_group.forget()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer fetches."""
        assigned = self.opened.in_share_group.core.membership.assigned
        return frozenset(
            partition
            for partition in self._cluster.topics.partitions()
            if self._cluster.id_of(partition) in assigned
        )

    def acknowledged(self, partition: TopicPartition) -> dict[int, Acknowledgement]:
        """The last acknowledgement of each record that has one."""
        return dict(sorted(self._cluster.acknowledged[self._cluster.id_of(partition)].items()))

    def deliveries(self, partition: TopicPartition) -> dict[int, int]:
        """The delivery count of each record that was delivered."""
        offsets = self._cluster.shares[self._cluster.id_of(partition)].offsets
        return {offset: entry.count for offset, entry in sorted(offsets.items())}

    def expire_locks(self) -> None:
        """Suspend the consumer until the locks of all records have passed."""
        locked = [lock for share in self._cluster.shares.values() for _, lock in share.acquired()]
        if not locked:
            raise IllegalStateError("no record is locked: the consumer has acknowledged all")
        end = max(lock.deadline for lock in locked)
        # Without the event loop, so that the consumer renews nothing.
        while self._passing.clock.step(end):
            pass

    def disconnect(self) -> None:
        """Close all connections of the consumer."""
        self.opened.connections.disconnect()

    def move_leader(self, partition: TopicPartition) -> None:
        """Let another broker lead this partition."""
        self._cluster.move_leader(partition)
