"""Commits of which only the broker knows the result: what it holds is read back.

A commit without a response may still be processed after a later one on a new connection, and rewind
it. So the partition is committed again, and the broker is asked for its offset: when there is
nothing to commit, and before the partition is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, Node
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    FetchedOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import OnReply, Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import TopicPartition


class ReadBack:
    """Asks the coordinator for the offsets and the metadata that it holds.

    The first completion map that is acknowledged is read back; if that fails, the next one. Tansu
    0.6 acknowledges commits and stores no metadata. Then no maps are written any more, and
    revocations do not rely on them.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: ClusterMetadata, maps: CommittedMaps
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._maps = maps
        # Whether it is known if the brokers keep maps.
        self._known = config.commit_mode == "manual"
        self._asking = False

    def ask(
        self,
        node: Node,
        channel: Channel,
        partitions: tuple[TopicPartition, ...],
        on_reply: OnReply,
    ) -> None:
        """Send the request; ``on_reply`` gets an OffsetFetchResponse or a failure."""
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "",
                partitions=partitions,
                require_stable=False,
                topic_ids=self._cluster.topic_ids(partitions),
            ),
            node,
            channel,
            self._config.request_timeout,
            on_reply,
        )

    def committed(self, node: Node, instance: PartitionInstance, entry: CommitEntry) -> None:
        """The coordinator has acknowledged this commit: ask for its map. Commits do not wait for
        the response: the request has a connection of its own."""
        if self._known or self._asking or not entry.metadata:
            return
        self._asking = True
        self.ask(
            node,
            Channel.READ_BACK,
            (entry.partition,),
            lambda _now, reply: self._map_read(instance, entry, reply),
        )

    def _map_read(self, instance: PartitionInstance, entry: CommitEntry, reply: Reply) -> None:
        self._asking = False
        if not isinstance(reply, OffsetFetchResponse) or reply.error is not ErrorCode.none:
            return
        for found in reply.offsets:
            if (found.partition, found.error) != (entry.partition, ErrorCode.none):
                continue
            # Whether no other commit of this member was acknowledged since.
            is_last = not instance.terminal and instance.committed_map == entry.metadata
            if found.metadata:
                self._known = True
            elif found.offset == entry.offset and is_last:
                self._known = True
                self._maps.not_kept()


class UnverifiedCommits:
    """The partitions whose committed offset at the broker is unknown."""

    def __init__(
        self,
        outbox: Outbox,
        read_back: ReadBack,
        coordinator: Coordinator,
        committer: Committer,
    ) -> None:
        self._outbox = outbox
        self._read_back = read_back
        self._coordinator = coordinator
        self._committer = committer
        self.verifying = False
        # True if the broker has confirmed the right offset since. It is asked once more before
        # the release, as a delayed commit may have arrived later.
        self._unverified: dict[PartitionInstance, bool] = {}

    def __contains__(self, instance: PartitionInstance) -> bool:
        return instance in self._unverified and (
            instance.revoking or not self._unverified[instance]
        )

    @property
    def pending(self) -> bool:
        """Whether a partition was not found to have the right offset yet."""
        return not all(self._unverified.values())

    def add(self, instance: PartitionInstance) -> None:
        """A commit has no response: commit again, and verify before the release."""
        if not instance.terminal:
            instance.set_committed(None, instance.committed_map)
            self._unverified[instance] = False

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended."""
        self._unverified.pop(instance, None)

    def verify(self, now: float, *, idle: bool = False) -> None:
        """Fetch the offsets of partitions that wait for their release; with ``idle`` of all."""
        asked = [
            instance
            for instance in self._unverified
            if (instance.revoking or (idle and not self._unverified[instance]))
            and instance.committed_offset is not None
            and self._committer.entry(instance) is None
        ]
        if not asked or self.verifying:
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("verify", self.verify, now)
            return
        self.verifying = True
        # On the connection of commits: it is processed after those sent before. No commit is sent
        # meanwhile; that ends at ``request_timeout`` at the latest, and after a silence timeout
        # (a third of ``session_timeout``) if the coordinator responds on another connection.
        self._read_back.ask(
            node,
            Channel.COMMIT,
            tuple(instance.partition for instance in asked),
            lambda later, reply: self._offset_fetch_response_received(later, node, asked, reply),
        )

    def _offset_fetch_response_received(
        self, now: float, node: Node, asked: list[PartitionInstance], reply: Reply
    ) -> None:
        self.verifying = False
        held: dict[TopicPartition, FetchedOffset] = {}
        if isinstance(reply, OffsetFetchResponse) and reply.error is ErrorCode.none:
            held = {o.partition: o for o in reply.offsets if o.error is ErrorCode.none}
        elif isinstance(reply, Failed):
            why = f"offset fetch: {reply.detail or reply.kind.value}"
            self._coordinator.no_response(now, why, node)
        certain: list[PartitionInstance] = []
        rewound: list[PartitionInstance] = []
        for instance in asked:
            found = held.get(instance.partition)
            if instance.terminal or found is None:
                continue
            if (found.offset, found.metadata) == (
                instance.committed_offset,
                instance.committed_map,
            ):
                certain.append(instance)
                if instance.revoking:
                    del self._unverified[instance]
                else:
                    self._unverified[instance] = True
            else:
                rewound.append(instance)
                instance.set_committed(found.offset, found.metadata)
        if rewound:
            self._outbox.emit(
                log_events.OFFSET_REWOUND,
                offsets={str(i.partition): i.committed_offset for i in rewound},
            )
        complete = all(instance.terminal or instance.partition in held for instance in asked)
        self._committer.verified(now, certain, rewound, complete)
