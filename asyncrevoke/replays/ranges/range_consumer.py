"""A consumer that reads ranges of offsets, and describes topics."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.errors import ConsumerClosedError
from asyncrevoke.client.runtime.arrow.arrow_steps import ArrowSteps
from asyncrevoke.client.runtime.session.open_session import open_session
from asyncrevoke.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.core.queries.offset_queries import TopicDescription
    from asyncrevoke.client.model import PollResult, TopicPartition
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.arrow.arrow_options import ArrowOptions
    from asyncrevoke.client.runtime.session.session import Session


class RangeConsumer(Consumer):
    """A consumer without a group."""

    def _load_parser(self) -> None:
        """Do nothing: many only describe topics, and none has heartbeats that an import delays."""

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
    def record_producer(self) -> RecordProducer:
        """Writes encoded records over the connections of this consumer."""
        return self._handler_host.open_producer(self._entered())

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Returns the time that written records get, in seconds since the epoch."""
        return self._entered().wall_clock

    def arrow_steps(self, options: ArrowOptions) -> ArrowSteps:
        """Makes Arrow batches of steps."""
        return ArrowSteps(self._entered(), options)

    async def poll_columns(
        self,
        timeout: float,  # noqa: ASYNC109 - a result, not an error, ends it
        large: LargePoll,
    ) -> PollResult:
        """One step, as :meth:`poll`, that is to become Arrow batches."""
        result = await self._reading().step(timeout, large=large)
        if result is None:
            raise ConsumerClosedError("the consumer is stopping: there are no further records")
        return result

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


class WholeBatches(RangeConsumer):
    """Each record is a batch: the offset of its last record, and its bytes as the value.

    For reading only: counting these records counts batches.
    """

    def _open(self) -> Session:
        return open_session(self._config, None, whole_batches=True)


class ReturnsUnreadable(RangeConsumer):
    """A consumer that returns an ``UnreadableRecord`` as the last record of a partition instead of
    raising UnreadableRecordError. The position moves past the record."""

    def _open(self) -> Session:
        session = super()._open()
        session.core.deliver_unreadable()
        return session


def consumer_of(
    config: ConsumerConfig, *, whole_batches: bool = False, unreadable: bool = False
) -> RangeConsumer:
    """A consumer with these options. The caller enters it.

    With ``whole_batches``, each of its records is a record batch. With ``unreadable``, it returns
    an ``UnreadableRecord`` for a record that cannot be read, instead of raising
    UnreadableRecordError.
    """
    # The value of a whole batch is always a view.
    read = replace(config, value_as="view" if whole_batches else "bytes")
    kind = WholeBatches if whole_batches else ReturnsUnreadable if unreadable else RangeConsumer
    return kind(**options_of(read))


def options_of(config: ConsumerConfig) -> ConsumerOptions:
    """The options that make this configuration, without those that have their default values: some
    may not be given together with others."""
    options = {
        field.name: value
        for field in fields(config)
        if (value := getattr(config, field.name)) != field.default
    }
    return cast("ConsumerOptions", options)
