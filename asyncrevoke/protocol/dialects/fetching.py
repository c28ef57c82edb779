"""Fetch."""

# Each version of a message is a module of kio: only those in use are loaded.
# ruff: noqa: PLC0415

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.dialects.dialect import Dialect, duration, make
from asyncrevoke.protocol.messages import (
    AbortedTransaction,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    from kio.schema.fetch.v11 import response as fetch11
    from kio.schema.fetch.v12 import response as fetch12
    from kio.static.primitive import i8, i32, i64

__all__ = ["fetch_v11", "fetch_v12"]


def fetch_v11() -> Dialect:
    """With the rack of the consumer (KIP-392) and leader epochs (KIP-320)."""
    from kio.schema.fetch.v11 import request as q
    from kio.schema.fetch.v11 import response as r
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    # The casts spare kio's range checks, which would double the time; what is out of range cannot
    # be written.
    def build(message: FetchRequest) -> q.FetchRequest:
        return q.FetchRequest(
            max_wait=duration(message.max_wait),
            min_bytes=cast("i32", message.min_bytes),
            max_bytes=cast("i32", message.max_bytes),
            isolation_level=cast("i8", int(message.read_committed)),
            session_id=cast("i32", message.session_id),
            session_epoch=cast("i32", message.session_epoch),
            # A topic may stand there twice: brokers fill a response in the order of the request.
            topics=tuple(
                q.FetchTopic(
                    topic=TopicName(topic),
                    partitions=tuple(
                        q.FetchPartition(
                            partition=cast("i32", entry.partition.partition),
                            current_leader_epoch=cast("i32", entry.leader_epoch),
                            fetch_offset=cast("i64", entry.offset),
                            partition_max_bytes=cast("i32", entry.max_bytes),
                        )
                        for entry in entries
                    ),
                )
                for topic, entries in groupby(message.partitions, _topic)
            ),
            forgotten_topics_data=tuple(
                q.ForgottenTopic(
                    topic=TopicName(topic), partitions=tuple(i32(tp.partition) for tp in forgotten)
                )
                for topic, forgotten in groupby(message.forgotten, _name)
            ),
            rack_id=message.rack,
        )

    return make(q.FetchRequest, build, r.FetchResponse, _fetched)


def fetch_v12() -> Dialect:
    """The same with tagged fields."""
    from kio.schema.fetch.v12 import request as q
    from kio.schema.fetch.v12 import response as r
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    # The casts spare kio's range checks, which would double the time; what is out of range cannot
    # be written.
    def build(message: FetchRequest) -> q.FetchRequest:
        return q.FetchRequest(
            max_wait=duration(message.max_wait),
            min_bytes=cast("i32", message.min_bytes),
            max_bytes=cast("i32", message.max_bytes),
            isolation_level=cast("i8", int(message.read_committed)),
            session_id=cast("i32", message.session_id),
            session_epoch=cast("i32", message.session_epoch),
            # A topic may stand there twice: brokers fill a response in the order of the request.
            topics=tuple(
                q.FetchTopic(
                    topic=TopicName(topic),
                    partitions=tuple(
                        q.FetchPartition(
                            partition=cast("i32", entry.partition.partition),
                            current_leader_epoch=cast("i32", entry.leader_epoch),
                            fetch_offset=cast("i64", entry.offset),
                            partition_max_bytes=cast("i32", entry.max_bytes),
                        )
                        for entry in entries
                    ),
                )
                for topic, entries in groupby(message.partitions, _topic)
            ),
            forgotten_topics_data=tuple(
                q.ForgottenTopic(
                    topic=TopicName(topic), partitions=tuple(i32(tp.partition) for tp in forgotten)
                )
                for topic, forgotten in groupby(message.forgotten, _name)
            ),
            rack_id=message.rack,
        )

    return make(q.FetchRequest, build, r.FetchResponse, _fetched)


def _topic(entry: FetchPartition) -> str:
    return entry.partition.topic


def _name(partition: TopicPartition) -> str:
    return partition.topic


def _fetched(entity: fetch11.FetchResponse | fetch12.FetchResponse) -> FetchResponse:
    return FetchResponse(
        error=entity.error_code,
        session_id=entity.session_id,
        partitions=tuple(
            _partition(topic.topic, partition)
            for topic in entity.responses
            for partition in topic.partitions
        ),
    )


def _partition(
    topic: str, entity: fetch11.PartitionData | fetch12.PartitionData
) -> FetchedPartition:
    aborted = entity.aborted_transactions
    return FetchedPartition(
        partition=TopicPartition(topic, entity.partition_index),
        error=entity.error_code,
        high_watermark=entity.high_watermark,
        last_stable_offset=entity.last_stable_offset,
        log_start_offset=entity.log_start_offset,
        aborted=tuple(
            AbortedTransaction(
                producer_id=transaction.producer_id, first_offset=transaction.first_offset
            )
            for transaction in aborted
        )
        if aborted
        else (),
        preferred_read_replica=entity.preferred_read_replica,
        records=entity.records or b"",
    )
