"""Reads the topic that ``KafkaSink`` has written to, for ``asyncrevoke journal collect``."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError, JournalError
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.journal.topic.collected_folder import MOST_SESSIONS, CollectedFolder
from asyncrevoke.journal.topic.offsets_snapshot import write_snapshot
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from asyncrevoke.client.config import ConsumerConfig

    # Returns the committed offsets of a group.
    CommittedOffsets: TypeAlias = Callable[[str], Awaitable[Mapping[TopicPartition, int]]]

# Seconds without progress after which reading fails.
_NO_PROGRESS: Final = 120.0


class Collected(NamedTuple):
    """What a topic has: sessions, rows, and ``invalid``, the number of records that are not
    valid pieces of a journal."""

    sessions: int
    rows: int
    invalid: int


async def collect(
    topic: str,
    folder: Path,
    config: ConsumerConfig,
    *,
    max_sessions: int = MOST_SESSIONS,
    committed_by: CommittedOffsets | None = None,
) -> Collected:
    """Write a journal's folder from a topic that ``KafkaSink`` has written to.

    Reads the topic up to its end at the time of the call. With ``committed_by``, it then requests
    the committed offsets of the journals' groups, writes them into the folder, and reads up to the
    new end of the topic: a commit is sent only after its rows are in the topic. ``config`` has the
    connection options.

    Counts, but does not write, incomplete pieces, repeated rows, and pieces with invalid session
    ids. Raises ConfigError if the topic does not exist or the folder is not empty, and JournalError
    if there are more than ``max_sessions`` sessions or the topic cannot be read.
    """
    if not await asyncio.to_thread(_is_free, folder):
        raise ConfigError(f"{folder} is not empty: use a new folder")
    collected = CollectedFolder(folder, max_sessions)
    invalid = 0
    try:
        partitions = await _partitions(topic, config)
        options = replace(config, group_id=None, isolation_level="read_committed")
        async with consumer_of(options) as consumer:
            await asyncio.to_thread(collected.begin)
            positions = dict(await consumer.beginning_offsets(*partitions))
            async for value in _to_the_end(consumer, positions):
                invalid += value is None or not collected.take(value)
            if committed_by is not None:
                at = time.time_ns() // 1000
                committed = {group: await committed_by(group) for group in sorted(collected.groups)}
                async for value in _to_the_end(consumer, positions):
                    invalid += value is None or not collected.take(value)
                await asyncio.to_thread(write_snapshot, folder, at, committed)
        collected.seal()
    except (ConfigError, JournalError):
        raise
    except AsyncRevokeError as error:
        raise JournalError(f"topic {shown_option(topic)} cannot be read: {error}") from error
    finally:
        collected.abandon()
    return Collected(collected.sessions, collected.rows, invalid)


def _is_free(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


async def _partitions(topic: str, config: ConsumerConfig) -> list[TopicPartition]:
    check_topics((topic,), "collect")
    async with GroupsClient(config) as brokers:
        described = await brokers.metadata((topic,))
    numbers = sorted(
        {partition.partition for known in described.topics for partition in known.partitions}
    )
    if not numbers:
        raise ConfigError(
            f"there is no topic {shown_option(topic)}, or this user may not describe it"
        )
    return [TopicPartition(topic, number) for number in numbers]


async def _to_the_end(
    consumer: RangeConsumer, positions: dict[TopicPartition, int]
) -> AsyncIterator[bytes | None]:
    """All values from these positions up to the current ends of the partitions, and perhaps some
    later ones. Moves the positions."""
    ends = await consumer.end_offsets(*positions)
    wanted = {tp: range(at, max(at, ends[tp])) for tp, at in positions.items()}
    reader = Reader(consumer, wanted, _NO_PROGRESS)
    reader.begin()
    while reader.left:
        step = await reader.next()
        if step is None:
            raise JournalError(reader.no_progress())
        if step.lost:
            raise JournalError(f"{next(iter(step.lost))} was deleted while it was read")
        for record in step.records:
            yield record.value
    positions.update(reader.positions)
