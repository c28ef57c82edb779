"""Fetch."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.dialects import fetch_bytes
from asyncrevoke.client.protocol.dialects.dialect import (
    Dialect,
    duration,
    make,
    make_by_id,
    schema,
    throttle_time_of,
    with_shortcut,
)
from asyncrevoke.client.protocol.dialects.topic_ids import by_id, by_name, with_names
from asyncrevoke.client.protocol.messages import (
    AbortedTransaction,
    BrokerMetadata,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.fetch.v11 import response as fetch11
    from kio.schema.fetch.v12 import response as fetch12
    from kio.schema.fetch.v13 import response as fetch13
    from kio.schema.fetch.v16 import response as fetch16


def fetch(version: int) -> Dialect:
    """With the rack of the consumer (KIP-392) and leader epochs (KIP-320); version 12 adds tagged
    fields. From version 13 on, the request needs the ids of all its topics (KIP-516), and a topic
    that was deleted and created again is not read at the old positions. Version 16 has the leader
    of a partition that has moved, and its address (KIP-951)."""
    q, r = schema("fetch", version)
    field, named = ("topic_id", by_id) if version >= 13 else ("topic", by_name)

    # Without kio's range checks, which would double the time; encoding fails out of range.
    def build(message: FetchRequest) -> object:
        return q.FetchRequest(
            max_wait=duration(message.max_wait),
            min_bytes=message.min_bytes,
            max_bytes=message.max_bytes,
            isolation_level=int(message.read_committed),
            session_id=message.session_id,
            session_epoch=message.session_epoch,
            # A topic may occur twice: brokers fill a response in the order of the request.
            topics=tuple(
                q.FetchTopic(
                    **{field: named(message.topic_ids, name)},
                    partitions=tuple(
                        q.FetchPartition(
                            partition=entry.partition.partition,
                            current_leader_epoch=entry.leader_epoch,
                            fetch_offset=entry.offset,
                            partition_max_bytes=entry.max_bytes,
                        )
                        for entry in entries
                    ),
                )
                for name, entries in groupby(message.partitions, _topic_of_entry)
            ),
            forgotten_topics_data=tuple(
                q.ForgottenTopic(
                    **{field: named(message.topic_ids, name)},
                    partitions=tuple(tp.partition for tp in partitions),
                )
                for name, partitions in groupby(message.forgotten, _topic_of)
            ),
            rack_id=message.rack,
        )

    if version < 13:
        dialect = make(q.FetchRequest, build, r.FetchResponse, _fetched)
    else:
        read = _fetched_by_id if version < 16 else _fetched_with_leaders
        dialect = make_by_id(q.FetchRequest, build, r.FetchResponse, read)
    match version:
        case 11:
            return with_shortcut(dialect, fetch_bytes.write_v11, fetch_bytes.read_v11)
        case 13:
            return with_shortcut(dialect, fetch_bytes.write_v13, fetch_bytes.read_v13)
        case 16:
            return with_shortcut(dialect, fetch_bytes.write_v16, fetch_bytes.read_v13)
        case _:
            return dialect


def _topic_of_entry(entry: FetchPartition) -> str:
    return entry.partition.topic


def _topic_of(partition: TopicPartition) -> str:
    return partition.topic


def _fetched(entity: fetch11.FetchResponse | fetch12.FetchResponse) -> FetchResponse:
    return _response(
        entity,
        (
            _partition(topic.topic, partition)
            for topic in entity.responses
            for partition in topic.partitions
        ),
    )


def _fetched_by_id(entity: fetch13.FetchResponse, request: FetchRequest | None) -> FetchResponse:
    return _response(
        entity,
        (
            _partition(name, partition)
            for name, topic in with_names(entity.responses, request)
            for partition in topic.partitions
        ),
    )


def _fetched_with_leaders(
    entity: fetch16.FetchResponse, request: FetchRequest | None
) -> FetchResponse:
    return _response(
        entity,
        (
            _partition(name, partition, leader.leader_id, leader.leader_epoch)
            for name, topic in with_names(entity.responses, request)
            for partition in topic.partitions
            for leader in (partition.current_leader,)
        ),
        tuple(
            BrokerMetadata(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in entity.node_endpoints
        ),
    )


def _response(
    entity: fetch11.FetchResponse
    | fetch12.FetchResponse
    | fetch13.FetchResponse
    | fetch16.FetchResponse,
    partitions: Iterable[FetchedPartition],
    leaders: tuple[BrokerMetadata, ...] = (),
) -> FetchResponse:
    return FetchResponse(
        error=entity.error_code,
        session_id=entity.session_id,
        throttle_time=throttle_time_of(entity),
        partitions=tuple(partitions),
        leaders=leaders,
    )


def _partition(
    topic: str,
    entity: fetch11.PartitionData
    | fetch12.PartitionData
    | fetch13.PartitionData
    | fetch16.PartitionData,
    leader_id: int = -1,
    leader_epoch: int = -1,
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
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        records=entity.records or b"",
    )
