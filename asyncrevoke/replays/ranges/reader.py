"""Reads ranges of offsets, one of each partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.model import PollResult, TopicPartition
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

# Seconds of one wait for records, before positions are checked again.
_STEP = 0.25


class Reader:
    """Reads these ranges with ``consumer``, which must be entered before :meth:`begin`.

    Progress means that positions advance, also past control markers and past records that are
    aborted or compacted away. :meth:`next` reports ``no_progress_timeout`` seconds without
    progress.
    """

    def __init__(
        self,
        consumer: RangeConsumer,
        ranges: Mapping[TopicPartition, range],
        no_progress_timeout: float,
    ) -> None:
        self._consumer = consumer
        self._no_progress_timeout = no_progress_timeout
        self.positions = {
            partition: offset_range.start for partition, offset_range in ranges.items()
        }
        # The ends of the ranges that are not read to their end.
        self.left = {
            partition: offset_range.stop
            for partition, offset_range in ranges.items()
            if offset_range
        }

    def begin(self) -> None:
        """Seek to the start of the ranges."""
        self._consumer.assign(list(self.positions))
        # An earlier reader has paused the partitions that it read to the end.
        self._consumer.resume(*self.positions)
        self._consumer.fetch_until(self.left)
        for partition, start in self.positions.items():
            self._consumer.seek(partition, start)

    async def next(
        self, most: int | None = None, large: LargePoll | None = None
    ) -> PollResult | None:
        """The next records, some perhaps beyond the ends, or lost partitions. None if there was no
        progress in time. Call it while ``left`` is not empty; it returns no records only after
        reaching all ends.

        Raises OffsetOutOfRangeError if the log does not have the next offset. If cancelled, no
        record is lost.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._no_progress_timeout
        while True:
            wait = min(_STEP, self._no_progress_timeout)
            if large is None:
                step = await self._consumer.poll(wait, most)
            else:
                step = await self._consumer.poll_columns(wait, large)
            if step.lost:
                return step
            if self._moved():
                deadline = loop.time() + self._no_progress_timeout
            if step.by_partition() or not self.left:
                return step
            if loop.time() > deadline:
                return None

    def no_progress(self) -> str:
        """What :meth:`next` did not read in time, for an error."""
        (partition, end), *_ = self.left.items()
        return (
            f"{partition} cannot be read beyond offset {self.positions[partition]}, and is to be "
            f"read to {end}: no progress for {self._no_progress_timeout:g} s"
        )

    def _moved(self) -> bool:
        moved = False
        for partition, end in list(self.left.items()):
            position = self._consumer.position(partition)
            if position is None or position <= self.positions[partition]:
                continue
            moved = True
            self.positions[partition] = position
            if position >= end:
                self._consumer.pause(partition)
                del self.left[partition]
        return moved
