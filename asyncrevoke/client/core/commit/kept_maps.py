"""Whether the brokers keep the metadata of commits, and with it completion maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetFetchResponse

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.completion_maps import CompletionMaps
    from asyncrevoke.client.core.commit.read_back import ReadBack
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Reply
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.protocol.messages import CommitEntry


class KeptMaps:
    """Reads back the first completion map that is acknowledged; if that fails, the next one.

    Tansu 0.6 acknowledges commits and stores no metadata. Then no maps are written any more, and
    revocations do not rely on them. Commits do not wait for the response: the request has a
    connection of its own.
    """

    def __init__(self, config: ConsumerConfig, maps: CompletionMaps, read_back: ReadBack) -> None:
        self._maps = maps
        self._read_back = read_back
        self._known = config.commit_mode == "manual"
        self._asking = False

    def committed(self, node: Node, instance: PartitionInstance, entry: CommitEntry) -> None:
        """The coordinator has acknowledged this commit."""
        if self._known or self._asking or not entry.metadata:
            return
        self._asking = True
        self._read_back.ask(
            node,
            Channel.READ_BACK,
            (entry.partition,),
            lambda _now, reply: self._read(instance, entry, reply),
        )

    def _read(self, instance: PartitionInstance, entry: CommitEntry, reply: Reply) -> None:
        self._asking = False
        if not isinstance(reply, OffsetFetchResponse) or reply.error is not ErrorCode.none:
            return
        for found in reply.offsets:
            if (found.partition, found.error) != (entry.partition, ErrorCode.none):
                continue
            if found.metadata:
                self._known = True
            elif found.offset == entry.offset and self._is_last(instance, entry):
                self._known = True
                self._maps.not_kept()

    @staticmethod
    def _is_last(instance: PartitionInstance, entry: CommitEntry) -> bool:
        """Whether no other commit of this member was acknowledged since."""
        return not instance.terminal and instance.committed_map == entry.metadata
