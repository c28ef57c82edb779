"""Writes the folder of ``asyncrevoke journal collect``, from pieces of logs in a topic that
``KafkaSink`` has written to.

The topic is untrusted. A piece is written only if it is complete, belongs to one session with a
valid id, repeats no row, and is no larger than what ``KafkaSink`` sends. So no name in the topic
leads out of the folder, and the folder is no larger than the topic.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError, JournalError
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.journal.files import PRIVATE, folder_mode
from asyncrevoke.journal.format.schema import VERSION
from asyncrevoke.journal.format.sealed import About, SealedFile
from asyncrevoke.journal.segments import SEALED, problem_of_piece, read_piece
from asyncrevoke.journal.session_id import SessionId
from asyncrevoke.journal.session_list import ListedSession, write_session_list
from asyncrevoke.journal.topic.offsets_snapshot import write_snapshot
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.journal.format.arrow import RecordBatch

    CommittedOffsets: TypeAlias = Callable[[str], Awaitable[Mapping[TopicPartition, int]]]

# Limit for sessions: more than a group starts in years.
MOST_SESSIONS: Final = 10_000
# Limit for groups whose committed offsets are requested.
_MOST_GROUPS: Final = 100
# Limit for files that are open for writing.
_MOST_OPEN: Final = 100
# Limit for gaps in the rows of a session, which retention or an attacker may leave.
_MOST_RANGES: Final = 10_000


class CollectedFolder:
    """Writes pieces to files; :meth:`seal` completes them. ``sessions`` and ``rows`` count what was
    written; ``groups`` are those of the sessions."""

    def __init__(self, folder: Path, most_sessions: int = MOST_SESSIONS) -> None:
        self._folder = folder
        self._most_sessions = most_sessions
        # Ordered by the time of the last piece.
        self._open: OrderedDict[SessionId, SealedFile] = OrderedDict()
        self._segments: dict[SessionId, int] = {}
        self._known: dict[SessionId, RowRanges] = {}
        self._groups: dict[SessionId, str | None] = {}
        self.rows = 0
        self.groups: set[str] = set()

    @property
    def sessions(self) -> int:
        """The number of sessions of which rows were written."""
        return len(self._known)

    def listed(self) -> dict[str, ListedSession]:
        """The sessions, each with its group and its number of rows."""
        return {
            name: ListedSession(self._groups[name], known.count)
            for name, known in self._known.items()
        }

    def begin(self) -> None:
        """Create the folder."""
        self._folder.mkdir(folder_mode(PRIVATE), parents=True, exist_ok=True)

    def take(self, piece: bytes) -> bool:
        """Write the rows of a piece. Returns False, and writes nothing, for an invalid piece.

        Raises JournalError if there are too many sessions; OSError.
        """
        content = read_piece(piece)
        if problem_of_piece(content) is not None or content.about is None:
            return False
        name = SessionId(content.about.session)
        first, end = _rows_of(content.batches)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most_sessions:
                raise JournalError(
                    f"the topic has more than {self._most_sessions:,} sessions: raise the "
                    "limit with max_sessions=N if no other program has written to the topic"
                )
            known = self._known[name] = RowRanges()
        if not known.add(first, end):
            return False
        group = content.batches[0].column("group")[0].as_py()
        self._groups.setdefault(name, group)
        if isinstance(group, str) and len(self.groups) < _MOST_GROUPS:
            self.groups.add(group)
        file = self._file_of(name)
        for batch in content.batches:
            file.write(batch)
        self.rows += end - first
        return True

    def _file_of(self, name: SessionId) -> SealedFile:
        file = self._open.get(name)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._seal(*self._open.popitem(last=False))
            number = self._segments[name] = self._segments.get(name, 0) + 1
            path = self._folder / name
            if number == 1:
                path.mkdir(folder_mode(PRIVATE))
            file = self._open[name] = SealedFile(path / f"{number:06}{SEALED}", PRIVATE)
        self._open.move_to_end(name)
        return file

    def _seal(self, name: SessionId, file: SealedFile) -> None:
        file.seal(About(name, self._segments[name], None, None, VERSION))

    def seal(self) -> None:
        """Seal all files, after the topic was read to its end."""
        while self._open:
            self._seal(*self._open.popitem())

    def abandon(self) -> None:
        """Remove the files that are not sealed."""
        while self._open:
            _, file = self._open.popitem()
            file.abandon()


class RowRanges:
    """The row numbers of a session that were added, as sorted ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    @property
    def count(self) -> int:
        """How many numbers were added."""
        return sum(self._ends) - sum(self._firsts)

    def add(self, first: int, end: int) -> bool:
        """Add the numbers from ``first`` up to, not including, ``end``. Returns False if one of
        them was added before, or there are too many gaps."""
        firsts, ends = self._firsts, self._ends
        at = bisect_right(firsts, first)
        if (at and ends[at - 1] > first) or (at < len(firsts) and firsts[at] < end):
            return False
        follows = bool(at) and ends[at - 1] == first
        leads = at < len(firsts) and firsts[at] == end
        if follows and leads:
            ends[at - 1] = ends[at]
            del firsts[at], ends[at]
        elif follows:
            ends[at - 1] = end
        elif leads:
            firsts[at] = first
        elif len(firsts) >= _MOST_RANGES:
            return False
        else:
            firsts.insert(at, first)
            ends.insert(at, end)
        return True


def _rows_of(batches: list[RecordBatch]) -> tuple[int, int]:
    """The number of the first row, and the number after the last row. Row numbers are
    consecutive."""
    first = batches[0].column("seq")[0].as_py()
    rows = sum(batch.num_rows for batch in batches)
    return first, first + rows


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
    connection options. Last, it writes the list of all sessions.

    Counts, but does not write, incomplete pieces, repeated rows, and pieces with invalid session
    ids. Raises ConfigError if the topic does not exist or the folder is not empty, and JournalError
    if there are more than ``max_sessions`` sessions or the topic cannot be read.
    """
    if not await asyncio.to_thread(_is_free, folder):
        raise ConfigError(f"{folder} is not empty: use a new folder")
    collected = CollectedFolder(folder, max_sessions)
    invalid = 0
    at = time.time_ns() // 1000
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
        await asyncio.to_thread(write_session_list, folder, at, collected.listed())
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
