"""Reads back what this member has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.protocol.messages import OffsetFetchRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Channel, Node
    from asyncrevoke.client.core.io.outbox import OnReply, Outbox
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.model import TopicPartition


class ReadBack:
    """Asks the coordinator for the offsets and the metadata that it holds."""

    def __init__(self, outbox: Outbox, config: ConsumerConfig, cluster: ClusterMetadata) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster

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
