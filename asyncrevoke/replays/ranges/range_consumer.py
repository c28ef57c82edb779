"""A consumer that reads ranges of offsets, and describes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.core.queries.offset_queries import TopicDescription
    from asyncrevoke.client.model import TopicPartition


class RangeConsumer(Consumer):
    """A consumer without a group."""

    async def describe_topics(
        self, topics: Iterable[str] | None = None
    ) -> Mapping[str, TopicDescription]:
        """The current ids and partitions of the existing topics among ``topics``. None: of all
        topics that this user may describe.

        Raises TopicAuthorizationError, and RequestTimeoutError if no broker responds.
        """
        session = self._entered()
        result = await session.ask(session.core.describe_topics, topics)
        return cast("Mapping[str, TopicDescription]", result)

    async def topic_settings(self, topic: str, names: Sequence[str]) -> Mapping[str, str]:
        """The values of these options of a topic, as text; unknown ones are missing.

        Raises BrokerError, and RequestTimeoutError if no broker responds.
        """
        from asyncrevoke.replays.ranges.topic_settings import topic_settings

        return await topic_settings(self._entered(), topic, names)

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Returns the time that written records get, in seconds since the epoch."""
        return self._entered().wall_clock

    def fetch_until(self, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch these assigned partitions only up to these offsets, so that no fetch waits at the
        broker for records that nobody reads. Batches that begin before an end are returned whole.

        Raises IllegalStateError for a partition that is not assigned.
        """
        session = self._entered()
        session.call(session.core.seeking.fetch_until, ends)

    def leave_out_older(self, times: Mapping[TopicPartition, int]) -> None:
        """These assigned partitions stand where :meth:`offsets_for_times` has found these times
        (ms): return no older records before the first one at or after its time."""
        self._entered().core.seeking.leave_out_older(times)

    async def offset_ranges(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, range]:
        """The offsets of each partition that can be read now, with this isolation level."""
        first = await self.beginning_offsets(*partitions)
        last = await self.end_offsets(*partitions)
        return {partition: range(first[partition], last[partition]) for partition in partitions}
