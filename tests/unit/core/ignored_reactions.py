"""Reactions to a folder of the core that is tested alone: nothing follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class IgnoredPartitions:
    """Of what partitions report nothing follows, and everything is committed."""

    def position_changed(self, instance: PartitionInstance) -> None:
        pass

    def instance_ended(self, instance: PartitionInstance) -> None:
        pass

    def revocation_ended(self, now: float, instance: PartitionInstance) -> None:
        pass

    def is_committed(self, instance: PartitionInstance) -> bool:
        return True

    def commit_now(self, now: float) -> None:
        pass
