"""Reads back what this member has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.completion_maps import CompletionMaps
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import OnReply, Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import CommitEntry


class ReadBack:
    """Asks the coordinator for the offsets and the metadata that it holds.

    The first completion map that is acknowledged is read back; if that fails, the next one. Tansu
    0.6 acknowledges commits and stores no metadata. Then no maps are written any more, and
    revocations do not rely on them.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: ClusterMetadata, maps: CompletionMaps
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
