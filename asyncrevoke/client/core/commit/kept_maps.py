"""Whether the brokers keep the metadata of commits, and with it completion maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.completion_maps import CompletionMaps
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.protocol.messages import CommitEntry


class KeptMaps:
    """Reads back the first completion map that is acknowledged; if that fails, the next one.

    Tansu 0.6 acknowledges commits and stores no metadata. Then no maps are written any more, and
    revocations do not rely on them.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, cluster: ClusterMetadata, maps: CompletionMaps
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._maps = maps
        self._known = config.commit_mode == "manual"
        self._asking = False

    def committed(self, node: Node, entry: CommitEntry) -> None:
        """The coordinator has acknowledged this commit."""
        if self._known or self._asking or not entry.metadata:
            return
        self._asking = True
        partitions = (entry.partition,)
        # On the connection of commits, so it is processed after this commit and before the next.
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "",
                partitions=partitions,
                require_stable=False,
                topic_ids=self._cluster.topic_ids(partitions),
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            lambda _now, reply: self._read(entry, reply),
        )

    def _read(self, entry: CommitEntry, reply: Reply) -> None:
        self._asking = False
        if not isinstance(reply, OffsetFetchResponse) or reply.error is not ErrorCode.none:
            return
        for found in reply.offsets:
            if (found.partition, found.error) != (entry.partition, ErrorCode.none):
                continue
            if found.metadata == entry.metadata:
                self._known = True
            elif found.offset == entry.offset and not found.metadata:
                self._known = True
                self._maps.not_kept()
