"""Collects fetched records for a poll, in fair shares."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.fetch.cursor import FollowUp, PartitionCursor, Taken
from asyncrevoke.client.record_parts import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.fetch.reactions import FetchReactions
    from asyncrevoke.client.core.fetch.responses import FetchResponses
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.io.wall_clock import WallClock
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer, SoughtTime
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.protocol.records import RecordDecoder


class FairShare:
    """A ring of partitions: max-min fair, the least recently served first (KIP-41).

    No partition gets more than an equal share while another has records left, and what one leaves
    is shared among the rest. With more partitions than records per poll, each gets a turn.
    """

    def __init__(self) -> None:
        self._ring: dict[TopicPartition, PartitionCursor] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._ring

    def add(self, key: TopicPartition, source: PartitionCursor) -> None:
        """Add a source at the end of the ring, or keep its place in it."""
        self._ring[key] = source

    def remove(self, key: TopicPartition) -> None:
        """Remove a source."""
        self._ring.pop(key, None)

    def ready(self) -> bool:
        """Whether any source has items to take now."""
        return any(source.buffered for source in self._ring.values())

    def take(
        self, limit: int
    ) -> tuple[dict[TopicPartition, Sequence[Record]], list[tuple[PartitionCursor, Taken]]]:
        """Take up to ``limit`` records in fair shares; partitions in the order in which they were
        served. The second value has the results from which something follows.

        The cost grows with ``limit``, not with the number of sources, unless many of them keep
        their place without giving.
        """
        ring = self._ring
        taken: dict[TopicPartition, Sequence[Record]] = {}
        to_follow: list[tuple[PartitionCursor, Taken]] = []
        waiting = iter(list(ring.items()))
        active: list[tuple[TopicPartition, PartitionCursor]] = []
        served: list[tuple[TopicPartition, PartitionCursor]] = []
        while limit > 0:
            # With more sources than items, those further back get none and are not asked.
            while len(active) < limit and (entry := next(waiting, None)) is not None:
                if entry[1].buffered:
                    active.append(entry)
                elif entry[1].empty:
                    del ring[entry[0]]
            if len(active) < limit:
                active += [entry for entry in served if entry[1].buffered]
                served = []
            if not active:
                break
            share, odd = divmod(limit, len(active))
            turn, active = active[:limit], active[limit:]
            # Those that get one record more than others are behind them the next time.
            got_more: list[tuple[TopicPartition, PartitionCursor]] = []
            for number, entry in enumerate(turn):
                key, source = entry
                more = number < odd
                result = source.take(share + 1 if more else share)
                if records := result.records:
                    limit -= len(records)
                    taken[key] = joined(taken[key], records) if key in taken else records
                    # To the end of the ring.
                    del ring[key]
                    ring[key] = source
                    (got_more if more and share else served).append(entry)
                if not result.has_more:
                    del ring[key]
                if result.follow_up:
                    to_follow.append((source, result))
            for key, source in got_more:
                if key in ring:
                    del ring[key]
                    ring[key] = source
            served += got_more
        return taken, to_follow


class RecordCollector:
    """Takes records from the buffers of cursors that have any; each poll is a new ``round``."""

    def __init__(
        self,
        outbox: Outbox,
        responses: FetchResponses,
        cursors: Mapping[TopicPartition, PartitionCursor],
        wall_clock: WallClock,
        capacity: Callable[[PartitionInstance, int], int],
        fetcher: Fetcher,
        reactions: FetchReactions,
    ) -> None:
        self._outbox = outbox
        self._responses = responses
        self._cursors = cursors
        self._wall_clock = wall_clock
        self._fetcher = fetcher
        self._reactions = reactions
        self._ring = FairShare()
        # How many records of one partition may be delivered in a round.
        self.capacity = capacity
        # Grows with every poll: capacities are computed anew.
        self.round = 0
        # The wall clock at the present poll, in seconds since the epoch.
        self.wall_time = 0.0
        # Whether an unreadable record is delivered as UnreadableRecord, or raises an error.
        self.unreadable = False
        self._is_approximate = False

    def deliver_unreadable(self) -> None:
        """From now on return an ``UnreadableRecord``, as the last record of its partition, instead
        of reporting UnreadableRecordError."""
        self.unreadable = True

    def decode_by(self, decode: RecordDecoder) -> None:
        """Records of responses from now on are decoded by ``decode``."""
        self._responses.decode_by(decode)

    @property
    def has_full_buffer(self) -> bool:
        """Whether a partition is not fetched before some of its records are collected."""
        return any(
            not (cursor.filling or cursor.empty) and cursor.is_active
            for cursor in self._cursors.values()
        )

    def add(self, cursor: PartitionCursor) -> None:
        """Collect from it, if it has records."""
        if not cursor.empty:
            self._ring.add(cursor.instance.partition, cursor)

    def remove(self, cursor: PartitionCursor) -> None:
        """Do not collect from it any more."""
        self._ring.remove(cursor.instance.partition)

    def forget(self, cursor: PartitionCursor) -> None:
        """It is no longer fetched."""
        if cursor.not_due:
            self._outbox.cancel_timer(f"due {cursor.name}")
        self.remove(cursor)

    def leave_out_older(
        self, instance: PartitionInstance, buffer: RecordBuffer, records: Sequence[Record]
    ) -> Sequence[Record]:
        """Those of these records that follow the first one at or after the time by which the broker
        was asked for the position. Logged once."""
        sought = buffer.time_sought
        assert sought is not None
        if sought.end is None:
            first = records[0]
            # If the broker has named a control marker, or a record that is aborted or compacted
            # away, older records may follow.
            if first.offset != sought.offset or not 0 <= first.timestamp < sought.timestamp:
                buffer.set_time_sought(None)
                return records
            sought = sought._replace(end=instance.high_watermark)
            buffer.set_time_sought(sought)
            self._log_approximate(first, sought)
        assert sought.end is not None
        for index, record in enumerate(records):
            if record.timestamp >= sought.timestamp or record.offset >= sought.end:
                buffer.set_time_sought(None)
                return records[index:]
        return []

    def _log_approximate(self, first: Record, sought: SoughtTime) -> None:
        if not self._is_approximate:
            self._is_approximate = True
            self._outbox.emit(
                log_events.TIMES_APPROXIMATE,
                partition=str(first.topic_partition),
                offset=first.offset,
                timestamp=first.timestamp,
                sought=sought.timestamp,
            )

    @property
    def is_ready(self) -> bool:
        """Whether there is anything to collect (by estimate)."""
        self._responses.polled()
        self.round += 1
        return self._ring.ready()

    def collect(self, now: float, limit: int) -> dict[TopicPartition, Sequence[Record]]:
        """Take up to ``limit`` records in fair shares (KIP-41). Only moves the buffers."""
        self._responses.polled()
        self.round += 1
        self.wall_time = self._wall_clock.seconds(now)
        taken, to_follow = self._ring.take(limit)
        with_corrupt = self._with(FollowUp.CORRUPT, to_follow)
        for cursor in self._with(FollowUp.NOT_DUE, to_follow):
            self._wait_until_due(now, cursor)
        for cursor in with_corrupt:
            buffer, error = cursor.instance.buffer, cursor.corrupt_record
            if buffer is not None and error is not None:
                buffer.discard()
                self.remove(cursor)
                self._responses.report_corrupt(now, cursor, error)
        for partition in taken:
            cursor = self._cursors[partition]
            if cursor.corrupt_record is not None and cursor not in with_corrupt:
                self._responses.recovered(now, cursor)
            self._fetcher.records_taken(now, cursor)
        for cursor in with_corrupt:
            self._fetcher.records_taken(now, cursor)
        for cursor in self._with(FollowUp.PASSED, to_follow):
            if cursor.instance.partition not in taken:
                self._fetcher.records_taken(now, cursor)
                self._reactions.position_passed(now, cursor.instance)
        return taken

    @staticmethod
    def _with(
        follow_up: FollowUp, results: list[tuple[PartitionCursor, Taken]]
    ) -> list[PartitionCursor]:
        return [cursor for cursor, taken in results if follow_up in taken.follow_up]

    def _wait_until_due(self, now: float, cursor: PartitionCursor) -> None:
        if cursor.due_in is not None:
            self._outbox.set_timer(
                f"due {cursor.name}", now + cursor.due_in, partial(self._due, cursor)
            )

    def _due(self, cursor: PartitionCursor, _now: float) -> None:
        if cursor.not_due and not cursor.removed:
            # A seek may have replaced its buffer.
            self._fetcher.add(cursor.instance)
            self._outbox.wake()
