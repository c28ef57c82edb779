"""A journal in a topic, for members whose disks do not last.

Each record is a piece of a session's log that can be read alone. Its key is the session id.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from asyncrevoke.config.checks import addresses
from asyncrevoke.errors import ConfigError, JournalError
from asyncrevoke.journal.format.frames import Frame, SegmentHeader, header_frame
from asyncrevoke.journal.topic.collected_folder import MOST_SESSIONS, CollectedFolder
from asyncrevoke.journal.topic.offsets_snapshot import write_snapshot
from asyncrevoke.printable import shown_option
from asyncrevoke.runtime.net.kafka_clients import kafka_admin, kafka_consumer, kafka_producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Self, TypeAlias

    from asyncrevoke.model import TopicPartition as Partition

    # Returns the committed offsets of a group.
    CommittedOffsets: TypeAlias = Callable[[str], Awaitable[Mapping[Partition, int]]]

# Half of the default max.message.bytes, which leaves room for the record batch.
_MOST_BYTES = 500_000
_TIMEOUT = 30.0
_STOP = 2.0


class KafkaSink:
    """Also sends a journal to a topic: ``Journal(path, sink=KafkaSink("billing-journal", ...))``.

    Before the consumer sends a commit, the rows of the committed records are also in this topic, on
    all in-sync replicas. ``options`` are those of aiokafka's producer, such as
    ``bootstrap_servers`` and its security options. If rows cannot be sent within 30 s, the consumer
    fails with a JournalError, as it does on a full disk.

    The topic's retention decides how long rows are kept. ``asyncrevoke journal collect`` writes a
    folder from the topic.
    """

    def __init__(self, topic: str, **options: object) -> None:
        if not topic:
            raise ConfigError("KafkaSink needs the name of a topic")
        rejected = {"acks", "enable_idempotence", "transactional_id"} & options.keys()
        if rejected:
            raise ConfigError(
                f"KafkaSink({shown_option(topic)}): {', '.join(sorted(rejected))} cannot be set: "
                "the sink needs acks=all and idempotence without transactions"
            )
        if "bootstrap_servers" in options:
            addresses("bootstrap_servers", options["bootstrap_servers"])
        self.topic = topic
        self._options = options
        self._producer: Any = None

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r})"

    def copy(self) -> Self:
        """A sink with the same options, for one session."""
        return type(self)(self.topic, **self._options)

    async def send(self, session: str, pieces: list[bytes]) -> None:
        """Return when these pieces are in the topic, in their order. Raises JournalError."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                if self._producer is None:
                    producer = kafka_producer(acks="all", enable_idempotence=True, **self._options)
                    await producer.start()
                    self._producer = producer
                key = session.encode()
                sent = [await self._producer.send(self.topic, each, key=key) for each in pieces]
                await asyncio.gather(*sent)
        except TimeoutError as error:
            raise JournalError(
                f"the brokers have not acknowledged the journal in topic {self.topic!r} within "
                f"{_TIMEOUT:g} s: check that it exists and has enough in-sync replicas"
            ) from error
        except KafkaError as error:
            raise JournalError(
                f"the journal cannot be sent to topic {self.topic!r}: {error}"
            ) from error

    async def aclose(self) -> None:
        """Disconnect. Takes at most 2 seconds."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            async with asyncio.timeout(_STOP):
                await producer.stop()
        except (TimeoutError, KafkaError):
            # After a failure, stop() would wait for the unsent records.
            await producer.client.close()


def pieces(header: SegmentHeader, frames: Iterable[Frame]) -> Iterator[bytes]:
    """Logs of these frames, each small enough for a record of the topic."""
    some: list[Frame] = []
    size = 0
    for frame in frames:
        if some and size + len(frame.data) > _MOST_BYTES:
            yield _log(header, some)
            some, size = [], 0
        some.append(frame)
        size += len(frame.data)
    if some:
        yield _log(header, some)


def _log(header: SegmentHeader, frames: list[Frame]) -> bytes:
    begin = header_frame(header, frames[0].first)
    return b"".join([begin.data, *(frame.data for frame in frames)])


class Collected(NamedTuple):
    """What a topic has: sessions, rows, and ``invalid``, the number of records that are no valid
    piece of a journal."""

    sessions: int
    rows: int
    invalid: int


async def collect(
    topic: str,
    folder: Path,
    *,
    max_sessions: int = MOST_SESSIONS,
    committed_by: CommittedOffsets | None = None,
    **options: object,
) -> Collected:
    """Write a journal's folder from a topic that ``KafkaSink`` has written to.

    Reads the topic up to its end at the time of the call. With ``committed_by``, it then requests
    the committed offsets of the journals' groups, writes them into the folder, and reads up to the
    new end of the topic: a commit is sent only after its rows are in the topic. ``options`` are
    those of aiokafka's consumer.

    Counts, but does not write, incomplete pieces, repeated rows, and pieces with invalid session
    ids. Raises ConfigError if the topic does not exist or the folder is not empty, and JournalError
    if there are more than ``max_sessions`` sessions.
    """
    if not await asyncio.to_thread(_is_free, folder):
        raise ConfigError(f"{folder} is not empty: use a new folder")
    consumer = kafka_consumer(
        **options, group_id=None, enable_auto_commit=False, isolation_level="read_committed"
    )
    collected = CollectedFolder(folder, max_sessions)
    invalid = 0
    try:
        await consumer.start()
        partitions = await _partitions(topic, options)
        await asyncio.to_thread(collected.begin)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        async for value in _until_end(consumer, partitions):
            invalid += value is None or not collected.take(value)
        if committed_by is not None:
            at = time.time_ns() // 1000
            committed = {group: await committed_by(group) for group in sorted(collected.groups)}
            async for value in _until_end(consumer, partitions):
                invalid += value is None or not collected.take(value)
            await asyncio.to_thread(write_snapshot, folder, at, committed)
        collected.seal()
    except KafkaError as error:
        raise JournalError(f"topic {shown_option(topic)} cannot be read: {error}") from error
    finally:
        collected.abandon()
        await consumer.stop()
    return Collected(collected.sessions, collected.rows, invalid)


def _is_free(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


async def _partitions(topic: str, options: dict[str, object]) -> list[TopicPartition]:
    admin = kafka_admin(**options)
    await admin.start()
    try:
        (described,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    numbers = sorted(each["partition"] for each in described["partitions"])
    if not numbers:
        raise ConfigError(
            f"there is no topic {shown_option(topic)}, or this user may not describe it"
        )
    return [TopicPartition(topic, number) for number in numbers]


async def _until_end(
    consumer: Any,  # noqa: ANN401 - half typed
    partitions: list[TopicPartition],
) -> AsyncIterator[bytes | None]:
    """All values from the consumer's positions up to the current ends of the partitions."""
    ends = await consumer.end_offsets(partitions)
    left = {tp for tp in partitions if await consumer.position(tp) < ends[tp]}
    while left:
        for tp, records in (await consumer.getmany(*left, timeout_ms=1000)).items():
            for record in records:
                if record.offset < ends[tp]:
                    yield record.value
        left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
