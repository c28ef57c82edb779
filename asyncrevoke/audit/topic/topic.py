"""Reads the topic that an audit compares journals with."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.offsets import ALL_USED, Bounds, Range, UnusedHashes
from asyncrevoke.audit.topic.batch_reader import batch_consumer, headers, read_batches
from asyncrevoke.audit.topic.record_hashes import record_columns
from asyncrevoke.client.columns.record_fields import fields_of
from asyncrevoke.client.errors import BrokerError, ConfigError, RequestTimeoutError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.replays.ranges.topic_settings import CLEANUP_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.columns.record_fields import Buffer
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.journal.format.arrow import RecordBatch
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer


@dataclass(frozen=True)
class Topic:
    """Reads one topic. A read fails after ``no_progress_timeout`` seconds without progress.
    ``isolation_level`` should be that of the consumers."""

    name: str
    config: ConsumerConfig
    _: KW_ONLY
    bounds: Mapping[int, Bounds]
    compacted: bool
    no_progress_timeout: float

    has_batches = True

    @classmethod
    async def of(
        cls,
        name: str,
        config: ConsumerConfig,
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"],
        no_progress_timeout: float = 30.0,
    ) -> Self:
        """Ask the brokers for the current bounds of the topic's partitions, and whether the topic
        is compacted. Raises TopicError, and ConfigError if the topic does not exist."""
        config = replace(config, isolation_level=isolation_level)
        async with batch_consumer(config) as consumer:
            try:
                compacted = await _is_compacted(consumer, name)
            except RequestTimeoutError as error:
                raise TopicError(f"{name} cannot be read: {error}") from error
            described = (await consumer.describe_topics([name])).get(name)
            if described is None or not described.partitions:
                raise ConfigError(
                    f"there is no topic {shown_option(name)}, or this user may not describe it"
                )
            partitions = [
                TopicPartition(name, partition) for partition in sorted(described.partitions)
            ]
            lows = await consumer.beginning_offsets(*partitions)
            highs = await consumer.end_offsets(*partitions)
        bounds = {tp.partition: Bounds(lows[tp], highs[tp]) for tp in partitions}
        return cls(
            name,
            config,
            bounds=bounds,
            compacted=compacted,
            no_progress_timeout=no_progress_timeout,
        )

    async def read(
        self,
        ranges: Sequence[Range],
        take: Callable[[RecordBatch], None],
        take_headers: Callable[[RecordBatch], None] | None = None,
        unused: UnusedHashes = ALL_USED,
    ) -> None:
        """See :class:`~asyncrevoke.audit.compared_topic.AuditedTopic`."""

        def hashed(wanted: Range, batches: Sequence[Buffer]) -> None:
            if take_headers is not None:
                take_headers(headers(wanted.partition, batches))
            partition = TopicPartition(self.name, wanted.partition)
            for data, fields in fields_of(partition, range(wanted.lo, wanted.hi), batches):
                take(record_columns(wanted.partition, data, fields, unused))

        async with batch_consumer(self.config) as consumer:
            await read_batches(
                consumer, self.name, ranges, hashed, no_progress_timeout=self.no_progress_timeout
            )


async def is_compacted(name: str, config: ConsumerConfig) -> bool:
    """Whether the topic is compacted. False if it does not exist, or the user lacks
    DESCRIBE_CONFIGS on it. Raises RequestTimeoutError if no broker responds."""
    async with batch_consumer(config) as consumer:
        return await _is_compacted(consumer, name)


async def _is_compacted(consumer: RangeConsumer, name: str) -> bool:
    try:
        settings = await consumer.topic_settings(name, (CLEANUP_POLICY,))
    except BrokerError:
        return False
    return "compact" in settings.get(CLEANUP_POLICY, "")
