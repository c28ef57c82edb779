"""Methods of a consumer about partitions: pause, seek, offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from asyncrevoke.client.config.checks import time_ago
from asyncrevoke.client.errors import ConfigError, ConsumerClosedError, IllegalStateError
from asyncrevoke.client.model import OffsetAndMetadata, OffsetAndTimestamp, Record, TopicPartition
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from asyncrevoke.client.config import CommitMode
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession
    from asyncrevoke.client.runtime.session.session import Session

# What methods of a consumer take as a partition.
Partition: TypeAlias = TopicPartition | tuple[str, int]

# Timestamps of ListOffsets for the ends of a log.
_LATEST = -1
_EARLIEST = -2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds since the epoch, from 2001 on. As milliseconds they would be days of 1970 to 1973.
_EPOCH_SECONDS = range(10**9, 10**11 + 1)
_LAST = 2**63 - 1

S = TypeVar("S", bound="EnteredSession")


class SessionCalls:
    """Base of a consumer's methods that use its session, which is None before it is entered.

    ``_running`` is that of any group; ``_session`` is the same one, unless the group is a share
    group, which has no partitions to call something for.
    """

    _running: EnteredSession | None = None
    _session: Session | None = None

    def _entered_in_any_group(self) -> EnteredSession:
        """The session, also after closing. Raises IllegalStateError before entering."""
        if self._running is None:
            raise IllegalStateError(
                "this consumer is not entered yet: use `async with consumer:` first, or "
                "`await consumer.start()`"
            )
        return self._running

    def _entered_once(self) -> Session:
        if self._session is None:
            self._entered_in_any_group()
            raise ConfigError(
                "no partition of a share group has an owner, a position or an offset to commit: "
                "this call is for consumer groups"
            )
        return self._session

    def _entered(self) -> Session:
        """The session. Raises IllegalStateError before entering and after closing."""
        return self._not_closing(self._entered_once())

    def _not_closing(self, session: S) -> S:
        if self._still_open(session).closing:
            raise ConsumerClosedError(
                "this consumer is closing: its partitions are released after their final commit, "
                "and on_partitions_revoked is called after that, when commits, positions and "
                "pauses cannot change any more; a partition_lifespan exits before the final commit"
            )
        return session

    def _readable(self) -> Session:
        """The session, for a call that changes nothing: also while the consumer closes."""
        return self._still_open(self._entered_once())

    def _still_open(self, session: S) -> S:
        session.check_thread()
        if session.closed:
            raise ConsumerClosedError("this consumer is closed: make another one")
        return session


class PartitionCalls(SessionCalls):
    """Methods of a consumer about partitions.

    Each raises IllegalStateError unless the consumer is entered, and in another thread or event
    loop. While the consumer closes, calls that change nothing work as before, for example in the
    callbacks of a listener; others raise ConsumerClosedError. Those that wait for a broker retry
    until ``request_timeout``; cancelling them loses nothing. Partitions are
    ``TopicPartition`` or ``(topic, partition)``.
    """

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions of this consumer, including those that are being revoked."""
        return self._readable().core.assignment.partitions()

    def pause(self, *partitions: Partition) -> None:
        """Deliver no records of these until :meth:`resume`; they stay assigned.

        :meth:`Consumer.records` returns none, and no handler is started with one. Running handlers
        and tasks of a task group go on.

        The pause ends when the partition is released or lost. For a partition that is being revoked
        it applies only if the revocation is withdrawn.
        """
        self._entered().pause_by_user(to_partitions(partitions))

    def resume(self, *partitions: Partition) -> None:
        """End a pause."""
        self._entered().resume_by_user(to_partitions(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._readable().core.seeking.paused()

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``; records that were fetched before are dropped.

        So are those that :meth:`Consumer.records` has not returned, and those for which no handler
        or task was started. Running handlers and tasks go on, but their records no longer count.

        Raises IllegalStateError if the partition is not assigned or is being revoked, and
        ValueError for a negative offset.
        """
        if offset < 0:
            raise ValueError(
                f"offset {offset} is negative: use seek_to_beginning or seek_to_end for the ends"
            )
        self._entered().seek(to_partition(partition), offset)

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue at the first offset; without partitions, in all assigned ones."""
        await self._seek_to(partitions, _EARLIEST)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Continue at the end offset (with ``read_committed`` the last stable offset); without
        partitions, in all assigned ones."""
        await self._seek_to(partitions, _LATEST)

    def position(self, partition: Partition) -> int | None:
        """The offset of the next record to be delivered, None while it is unknown.

        In ``on_partitions_revoked`` and ``on_partitions_lost``, for a partition that the callback
        is called with: where it stood when it was released. Raises IllegalStateError if the
        partition is not assigned.
        """
        session, asked = self._readable(), to_partition(partition)
        released = session.listener.released()
        return released[asked] if asked in released else session.core.position(asked)

    async def committed(
        self, *partitions: Partition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group, None where there is none; without partitions, of the
        assigned ones."""
        session = self._readable()
        self._needs_group("committed")
        wanted = to_partitions(partitions) or sorted(session.core.assignment.partitions())
        result = await session.ask(session.core.committed, wanted)
        return cast("dict[TopicPartition, OffsetAndMetadata | None]", result)

    async def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int | datetime | timedelta]
        | Mapping[tuple[str, int], int | datetime | timedelta],
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each time, None without one.

        A time is a datetime with a time zone, a timedelta before now, or milliseconds since the
        epoch. Raises ConfigError for another type and for a negative timedelta, and ValueError for
        a time before the epoch, for a datetime without a time zone, and for an int from 10^9 to
        10^11, which are seconds since the epoch.
        """
        session = self._readable()
        wanted: dict[TopicPartition, int] = {}
        for given, at in timestamps.items():
            partition = to_partition(given)
            wanted[partition] = to_timestamp(partition, at, session.wall_clock)
        return await self._offsets(wanted)

    async def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._ends(partitions, _EARLIEST)

    async def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The offset after the last record; with ``read_committed`` the last stable offset."""
        return await self._ends(partitions, _LATEST)

    def last_stable_offset(self, partition: Partition) -> int | None:
        """The last stable offset as of the last fetch; None before the first fetch."""
        return self._readable().core.seeking.last_stable_offset(to_partition(partition))

    def highwater(self, partition: Partition) -> int | None:
        """The high watermark as of the last fetch; None before the first fetch."""
        return self._readable().core.seeking.highwater(to_partition(partition))

    async def partitions_for_topic(self, topic: str) -> frozenset[int]:
        """The partitions of a topic, empty if there is no such topic."""
        session = self._readable()
        result = await session.ask(session.core.partitions_for_topic, topic)
        return cast("frozenset[int]", result)

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets between the position and the high watermark, or with ``read_committed`` the last
        stable offset, as of the last fetches: what can be read now."""
        return self._readable().core.seeking.lag()

    def _needs_group(self, call: str) -> None:
        raise NotImplementedError

    async def _seek_to(self, partitions: tuple[Partition, ...], timestamp: int) -> None:
        session = self._entered()
        wanted = to_partitions(partitions) or sorted(session.core.assignment.partitions())
        await session.seek_to(wanted, timestamp)

    async def _ends(
        self, partitions: tuple[Partition, ...], timestamp: int
    ) -> dict[TopicPartition, int]:
        wanted = to_partitions(partitions) or sorted(self._readable().core.assignment.partitions())
        found = await self._offsets(dict.fromkeys(wanted, timestamp))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def _offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        session = self._readable()
        result = await session.ask(session.core.offsets_for_times, timestamps)
        return cast("dict[TopicPartition, OffsetAndTimestamp | None]", result)


def to_partition(given: object) -> TopicPartition:
    """A partition from a user's argument. Raises ConfigError."""
    match given:
        case TopicPartition():
            return given
        case (str(topic), int(partition)):
            return TopicPartition(topic, partition)
        case _:
            raise ConfigError(
                f"a partition is TopicPartition(topic, partition), not {shown_option(given)}"
            )


def to_timestamp(
    partition: TopicPartition, at: int | datetime | timedelta, wall_clock: Callable[[], float]
) -> int:
    """Milliseconds since the epoch from a user's argument. Raises ConfigError and ValueError."""
    given = cast("object", at)
    if isinstance(given, timedelta):
        ago = time_ago(str(partition), given)
        given = round((wall_clock() - ago.total_seconds()) * 1000)
    elif isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(
                f"{given!r} of {partition} has no time zone: use datetime(..., tzinfo=...)"
            )
        # Rounded up: no record before that time is found.
        given = -((_EPOCH - given) // timedelta(milliseconds=1))
    elif not isinstance(given, int) or isinstance(given, bool):
        raise ConfigError(
            f"a time is a datetime with a time zone, a timedelta before now, or milliseconds since "
            f"the epoch as an int, not {shown_option(given)}"
        )
    elif given in _EPOCH_SECONDS:
        raise ValueError(
            f"timestamp {given} of {partition} is in seconds: times are in milliseconds since the "
            "epoch; a datetime with a time zone is a time, too"
        )
    if given < 0:
        raise ValueError(
            f"timestamp {given} of {partition} is negative: use beginning_offsets or end_offsets "
            "for the ends"
        )
    if given > _LAST:
        raise ValueError(f"timestamp {given} of {partition} has more than 64 bits")
    return given


def to_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """Partitions from a user's argument. Raises ConfigError."""
    found: list[TopicPartition] = []
    for one in given:
        if isinstance(one, (list, set, frozenset)):
            raise ConfigError(
                "partitions are given one by one, not in a list: put a star before it"
            )
        found.append(to_partition(one))
    return found


def to_offsets(what: object, mode: CommitMode) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets from the argument of ``commit``. Raises ConfigError."""
    if mode != "manual":
        flush = "await commit() without an argument flushes what counts"
        raise ConfigError(
            f'commit_mode="{mode}" decides by itself what is committed: {flush}; to commit '
            'records or offsets of your own use commit_mode="manual"'
        )
    if isinstance(what, Record):
        return {what.topic_partition: OffsetAndMetadata(what.offset + 1)}
    if not isinstance(what, Mapping):
        raise ConfigError(
            f"commit takes a Record or {{TopicPartition: offset}}, not {shown_option(what)}"
        )
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in cast("Mapping[object, object]", what).items():
        if isinstance(offset, int) and not isinstance(offset, bool):
            offset = OffsetAndMetadata(offset)  # noqa: PLW2901 - the same, in full
        if not isinstance(offset, OffsetAndMetadata) or offset.offset < 0:
            raise ConfigError(
                f"commit: {partition}: {shown_option(offset)} is not an offset: give the next one "
                "to read"
            )
        offsets[to_partition(partition)] = offset
    return offsets
