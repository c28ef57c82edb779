"""Reads and counts the dead letters of one topic."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, Unpack

from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import BrokerError, IllegalStateError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.listing import Counting, Listing
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    read_dead_letter,
)
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from asyncrevoke.client.producing.record_producer import RecordProducer

_CLEANUP: Final = "cleanup.policy"
_TYPE: Final = "message.timestamp.type"
_RETENTION: Final = "retention.ms"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
# Of brokers before Apache Kafka 3.6 (KIP-937), for both directions.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
TIMESTAMP_OPTIONS: Final = (_CLEANUP, _TYPE, _RETENTION, _BEFORE, _AFTER, _DIFFERENCE)
_LONGEST_NUMBER: Final = 20
_UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimestampLimits:
    """The timestamps that ``topic`` accepts and keeps.

    ``replaces``: the broker sets the timestamp of each record. ``retention`` is in milliseconds,
    None if records stay, whatever their timestamp is. ``before`` and ``after`` are the most
    milliseconds before and after the present time, each with the name of its option.
    ``wall_clock`` returns seconds since the epoch.
    """

    topic: str
    replaces: bool
    retention: int | None
    before: tuple[str, int]
    after: tuple[str, int]
    wall_clock: Callable[[], float]

    @classmethod
    def of(cls, topic: str, settings: Mapping[str, str], wall_clock: Callable[[], float]) -> Self:
        """The limits in the configuration of a topic. Raises DeadLettersError."""
        policies = [policy.strip() for policy in settings.get(_CLEANUP, "delete").split(",")]
        retention = _number(topic, settings, _RETENTION)
        return cls(
            topic,
            settings.get(_TYPE) == "LogAppendTime",
            retention if "delete" in policies and retention >= 0 else None,
            _limit(topic, settings, _BEFORE),
            _limit(topic, settings, _AFTER),
            wall_clock,
        )

    def why_not(self, timestamp: int) -> str | None:
        """Why a record with this timestamp (ms since the epoch) would be rejected, or deleted at
        the next check of retention; None if it would stay."""
        if timestamp < 0:
            return "its original timestamp is unknown"
        if self.replaces:
            return f"{self.topic} replaces timestamps: it has {_TYPE}=LogAppendTime"
        age = int(self.wall_clock() * 1000) - timestamp
        name, most = self.before if age > 0 else self.after
        if abs(age) > most:
            when = "ago" if age > 0 else "ahead"
            return (
                f"its original timestamp is {abs(age)} ms {when}, which {self.topic} does not "
                f"accept ({name}={most})"
            )
        if self.retention is not None and age > self.retention:
            return (
                f"its original timestamp is {age} ms ago, and {self.topic} would delete it at once "
                f"({_RETENTION}={self.retention})"
            )
        return None


def _limit(topic: str, settings: Mapping[str, str], name: str) -> tuple[str, int]:
    for setting in (name, _DIFFERENCE):
        if setting in settings:
            return setting, _number(topic, settings, setting)
    # A broker without these options, as some that are compatible with Kafka.
    return name, _UNLIMITED


def _number(topic: str, settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < _LONGEST_NUMBER:
        return int(text)
    raise DeadLettersError(f"the broker does not report {name} of {topic}")


_RECORDS: Final = 500
_ALL: Final = DeadLetterFilter()


class DeadLetterTopic:
    """A dead letter topic, used inside ``async with``. It has no group, and commits nothing.

    ::

        async with DeadLetterTopic("orders.dlq", bootstrap_servers="kafka-1:9092") as letters:
            for row in (await letters.counts()).rows:
                print(row.origin_topic, row.error_type, row.count)

    ``options`` are the connection options of a Consumer, which ``config`` has. Reading is
    ``read_committed``, and ends at the end that the topic had at its beginning; after
    ``no_progress_timeout`` seconds without progress it raises DeadLettersError.
    """

    def __init__(
        self, topic: str, *, no_progress_timeout: float = 30.0, **options: Unpack[ConsumerOptions]
    ) -> None:
        config = ConsumerConfig(**options)
        (self.topic,) = check_topics((topic,), "DeadLetterTopic")
        self._no_progress_timeout = no_progress_timeout
        self.config = replace(
            config,
            group_id=None,
            group_instance_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            max_poll_records=_RECORDS,
        )
        self._stack = AsyncExitStack()
        self._consumer: RangeConsumer | None = None

    async def __aenter__(self) -> Self:
        consumer = consumer_of(self.config, unreadable=True)
        self._consumer = await self._stack.enter_async_context(consumer)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._consumer = None
        await self._stack.aclose()

    async def ends(self) -> dict[TopicPartition, range]:
        """The offsets of each partition that can be read now.

        Raises DeadLettersError if there is no such topic.
        """
        consumer = self._entered()
        numbers = await consumer.partitions_for_topic(self.topic)
        if not numbers:
            raise DeadLettersError(
                f"there is no topic {self.topic!r} at "
                f"{', '.join(self.config.bootstrap_servers)}, or this user may not describe it"
            )
        return await consumer.offset_ranges(
            [TopicPartition(self.topic, number) for number in sorted(numbers)]
        )

    async def read(
        self, ranges: Mapping[TopicPartition, range]
    ) -> AsyncGenerator[Sequence[StoredDeadLetter | NoDeadLetter]]:
        """The dead letters of these ranges, several at a time, in offset order."""
        async with aclosing(self.records(ranges)) as found:
            async for records in found:
                yield [read_dead_letter(record) for record in records]

    async def records(
        self, ranges: Mapping[TopicPartition, range]
    ) -> AsyncGenerator[Sequence[Record]]:
        """The records of these ranges, several at a time, in offset order."""
        consumer = self._entered()
        reader = Reader(consumer, ranges, self._no_progress_timeout)
        reader.begin()
        while reader.left:
            step = await reader.next(_RECORDS)
            if step is None:
                raise DeadLettersError(reader.no_progress())
            if step.lost:
                raise DeadLettersError(f"{self.topic} was deleted or recreated while it was read")
            yield [r for r in step.records if r.offset < ranges[r.topic_partition].stop]

    async def letters(
        self, chosen: DeadLetterFilter = _ALL
    ) -> AsyncGenerator[StoredDeadLetter | NoDeadLetter]:
        """The selected dead letters, and the records that are not dead letters."""
        async for found in self.read(await self.ends()):
            for letter in found:
                if isinstance(letter, NoDeadLetter) or chosen.takes(letter):
                    yield letter

    async def letter(self, partition: int, offset: int) -> StoredDeadLetter | NoDeadLetter:
        """The record at one offset. Raises DeadLettersError if there is none."""
        where = TopicPartition(self.topic, partition)
        known = (await self.ends()).get(where, range(0))
        if offset in known:
            async for found in self.read({where: range(offset, offset + 1)}):
                for letter in found:
                    return letter
        raise DeadLettersError(f"{where} has no record at offset {offset}")

    async def counts(self, chosen: DeadLetterFilter = _ALL) -> Listing:
        """Count the selected dead letters by origin and error."""
        counting = Counting(self.topic)
        async for letter in self.letters(chosen):
            if isinstance(letter, NoDeadLetter):
                counting.add_other(letter)
            else:
                counting.add(letter)
        return counting.end()

    async def timestamp_limits(self, topic: str) -> TimestampLimits:
        """Which timestamps ``topic`` accepts and keeps.

        Raises DeadLettersError if its configuration cannot be read.
        """
        consumer = self._entered()
        try:
            settings = await consumer.topic_settings(topic, TIMESTAMP_OPTIONS)
        except BrokerError as error:
            raise DeadLettersError(str(error)) from error
        return TimestampLimits.of(topic, settings, consumer.wall_clock)

    @property
    def producer(self) -> RecordProducer:
        """A producer that writes over the connections of this object."""
        return self._entered().record_producer

    def _entered(self) -> RangeConsumer:
        if self._consumer is None:
            raise IllegalStateError("a DeadLetterTopic is used inside `async with`")
        return self._consumer
