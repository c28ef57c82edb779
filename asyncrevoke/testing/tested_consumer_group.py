"""The simulated consumer group of a consumer under test: what a test does to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
    from asyncrevoke.testing.cluster import Cluster
    from asyncrevoke.testing.opened_session import OpenedSession


class TestedConsumerGroup:
    """``until`` lets time pass until a condition is true, for as long as a rebalance may take."""

    __test__ = False

    def __init__(
        self,
        cluster: Cluster,
        opened: OpenedSession,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
    ) -> None:
        self.opened = opened
        self._cluster = cluster
        self._until = until

    def reads_its_share(self) -> bool:
        """Whether the consumer owns all partitions that are not taken, and reads them."""
        cluster, session = self._cluster, self.opened.in_consumer_group
        if session.config.group_id is None or not session.core.subscription_state.subscription():
            return True
        share = {
            tp
            for tp in cluster.topics.partitions()
            if tp.topic in session.core.subscription_state.subscription()
            and tp not in cluster.group.taken
        }
        paused = session.core.seeking.paused()
        return (
            cluster.group.state is GroupState.STABLE
            and bool(cluster.group.others())
            and set(session.core.assignment.partitions()) == share
            and not any(session.core.is_revoking(tp) for tp in share)
            # It reads them: a fetch of other partitions may delay the first fetch of these.
            and all(session.core.seeking.highwater(tp) is not None for tp in share - paused)
        )

    def evict(self) -> None:
        """Remove the consumer from the group, as if its session had expired."""
        self._cluster.group.evict()

    def assignment(self) -> frozenset[TopicPartition]:
        """The consumer's partitions, including those that are being revoked."""
        return self.opened.in_consumer_group.core.assignment.partitions()

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset; None if there is none."""
        return self._cluster.group.offsets.get(partition)

    async def revoke(self, wanted: Sequence[TopicPartition]) -> None:
        """Assign partitions to the other member; returns when that is announced."""
        group, core = self._cluster.group, self.opened.in_consumer_group.core
        group.taken.update(wanted)
        group.rebalance()

        def announced(tp: TopicPartition) -> bool:
            return tp not in core.assignment.partitions() or core.is_revoking(tp)

        await self._until(lambda: all(map(announced, wanted)))

    async def withdraw(self, wanted: Sequence[TopicPartition]) -> None:
        """Assign partitions that are being revoked to the consumer again. Raises ValueError."""
        session = self.opened.in_consumer_group
        if session.config.group_protocol == "consumer":
            raise ValueError(
                'with group_protocol="consumer" a revocation is never withdrawn: wait for the '
                "release, then use give()"
            )
        for tp in wanted:
            if not session.core.is_revoking(tp):
                raise ValueError(
                    f"{tp} is not being revoked: it was released, or never revoked; use give() to "
                    "assign it"
                )
        await self.give(wanted)

    async def give(self, wanted: Sequence[TopicPartition]) -> None:
        """Assign these partitions of the other member to the consumer."""
        group = self._cluster.group
        group.taken.difference_update(wanted)
        group.rebalance()
        await self._until(self.reads_its_share)

    async def lose(self, wanted: Sequence[TopicPartition]) -> None:
        """Remove the consumer from the group; after the rejoin, the other member owns these."""
        group = self._cluster.group
        group.taken.update(wanted)
        group.evict()
        await self._until(self.reads_its_share)
