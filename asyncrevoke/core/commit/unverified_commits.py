"""Commits whose answers were lost: only the broker knows what it holds.

Such a commit may still be processed, even after a later one on a new connection, and rewind it. So
the partition is committed again, and the broker is asked what it holds: when there is nothing else
to do, and before the partition is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Channel, Failed
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.metadata.coordinator import Coordinator
    from asyncrevoke.core.partition.instance import PartitionInstance
    from asyncrevoke.model import TopicPartition


class UnverifiedCommits:
    """Which partitions are in doubt.

    ``owes(instance)``: whether it is to be committed first; ``topic_ids(partitions)``: the ids of
    their topics, if all are known.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        *,
        owes: Callable[[PartitionInstance], bool],
        topic_ids: Callable[[Iterable[TopicPartition]], dict[str, bytes] | None],
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._owes = owes
        self._topic_ids = topic_ids
        # Called with those of which the broker holds what it should, those that were rewound, and
        # whether it has answered for all.
        self.on_verified: Callable[
            [float, list[PartitionInstance], list[PartitionInstance], bool], None
        ] = lambda _now, _certain, _rewound, _answered: None
        self.verifying = False
        # True if the broker has held the right offset since: it is asked again before the release,
        # as a late commit may come after that.
        self._unverified: dict[PartitionInstance, bool] = {}

    def __contains__(self, instance: PartitionInstance) -> bool:
        return instance in self._unverified and (
            instance.revoking or not self._unverified[instance]
        )

    @property
    def pending(self) -> bool:
        """Whether the broker has not been found to hold the right offset of one of them."""
        return not all(self._unverified.values())

    def add(self, instance: PartitionInstance) -> None:
        """We cannot know what the broker holds for it: commit again, and verify before release."""
        if not instance.terminal:
            instance.committed_offset = None
            self._unverified[instance] = False

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended."""
        self._unverified.pop(instance, None)

    def verify(self, now: float, *, idle: bool = False) -> None:
        """Ask what the broker holds for those that wait for their release; for all, when there is
        nothing to commit (``idle``)."""
        asked = [
            instance
            for instance in self._unverified
            if (instance.revoking or (idle and not self._unverified[instance]))
            and instance.committed_offset is not None
            and not self._owes(instance)
        ]
        if not asked or self.verifying:
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("verify", self.verify, now)
            return
        self.verifying = True
        partitions = tuple(instance.partition for instance in asked)
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "",
                partitions=partitions,
                require_stable=False,
                topic_ids=self._topic_ids(partitions),
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            lambda later, reply: self._answered(later, node, asked, reply),
        )

    def _answered(
        self, now: float, node: Node, asked: list[PartitionInstance], reply: Reply
    ) -> None:
        self.verifying = False
        held: dict[TopicPartition, FetchedOffset] = {}
        if isinstance(reply, OffsetFetchResponse) and reply.error is ErrorCode.none:
            held = {o.partition: o for o in reply.offsets if o.error is ErrorCode.none}
        elif isinstance(reply, Failed):
            why = f"offset fetch: {reply.detail or reply.kind.value}"
            self._coordinator.unanswered(now, why, node)
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
                instance.committed_offset, instance.committed_map = found.offset, found.metadata
                self._outbox.emit(
                    "warning",
                    "committed offset rewound by delayed commit; recommitting",
                    partition=str(instance.partition),
                    found=found.offset,
                )
        answered = all(instance.terminal or instance.partition in held for instance in asked)
        self.on_verified(now, certain, rewound, answered)
