"""Responses whose number is in each record of theirs, so that an acquisition can be followed from
the broker to the handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.client.model import Record
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.share_messages import ShareFetchRequest, ShareFetchResponse
from asyncrevoke.testing.fake_kafka.share_leader import ShareLeader
from asyncrevoke.testing.fake_kafka.topics import SimulatedBatch, decode_simulated

if TYPE_CHECKING:
    from collections.abc import Hashable

    from asyncrevoke.client.protocol.records import RecordBatch
    from asyncrevoke.client.protocol.share_messages import (
        AcquiredRange,
        ShareAcknowledgeRequest,
    )
    from asyncrevoke.testing.fake_kafka.group_state import Reply
    from asyncrevoke.testing.fake_kafka.share_partition import SharePartition


class NumberingLeader(ShareLeader):
    """The leader epoch of each batch in a response is the number of the acquisition.

    ``fails_next`` is the error of the request that is handled: before anything is acquired, but
    UNKNOWN_SERVER_ERROR after it. ``corrupts`` so many responses with records.
    """

    fails_next: ErrorCode | None = None
    corrupts = 0

    @override
    def handle(
        self,
        message: ShareFetchRequest | ShareAcknowledgeRequest,
        connection: Hashable,
        reply: Reply,
    ) -> None:
        error = self.fails_next
        if error is None or not isinstance(message, ShareFetchRequest):
            super().handle(message, connection, reply)
        elif error is ErrorCode.unknown_server_error:
            super().handle(
                message, connection, lambda _response: reply(ShareFetchResponse(error=error))
            )
        else:
            reply(ShareFetchResponse(error=error))

    @override
    def records(
        self, partition: SharePartition, ranges: tuple[AcquiredRange, ...], acquisition: int
    ) -> bytes:
        first, last = ranges[0].first_offset, ranges[-1].last_offset
        packed = b"".join(
            partition.log.pack(batch._replace(epoch=acquisition))
            for batch in partition.log.batches_from(first)
            if batch.base <= last
        )
        if self.corrupts:
            self.corrupts -= 1
            return packed[:-1]
        return packed


class _NumberedBatch(SimulatedBatch):
    """The timestamp of its records is the number of the acquisition."""

    __slots__ = ()

    @override
    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        return [
            Record(topic, partition, offset, self.leader_epoch, 0, None, b"", (), tracker_id)
            for offset in range(max(self.base_offset, from_offset), self.base_offset + self.count)
        ]


def decode_numbered(fetched: FetchedPartition, read_committed: bool) -> list[RecordBatch]:
    """Decode the records of a ShareFetch response of a :class:`NumberingLeader`."""
    return [
        _NumberedBatch(batch.base_offset, batch.next_offset, batch.count, batch.leader_epoch)
        for batch in decode_simulated(fetched, read_committed)
    ]
