"""Produce in the versions that identify topics by id (KIP-516)."""

# Fields of kio's dataclasses are of any type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any, Final

from asyncrevoke.client.protocol.dialects.dialect import (
    Dialect,
    compact_string,
    make_by_id,
    schema,
    with_writer,
)
from asyncrevoke.client.protocol.dialects.topic_ids import by_id, with_names
from asyncrevoke.client.protocol.guard import varint_bytes
from asyncrevoke.client.protocol.messages import EntityResponse

# The version whose structures ``producing/requests.py`` has.
_BY_NAME: Final = 8
# acks, timeout
_START: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
_ID_SIZE: Final = 16
_MILLISECOND: Final = timedelta(milliseconds=1)


def produce_by_id(version: int) -> Dialect:
    """A request has the ids of all its topics. Its response becomes one of version 8, with the
    names that the request has for the ids, and without the errors of single records."""
    q, r = schema("produce", version)
    named = schema("produce", _BY_NAME).response

    def build(message: Any) -> object:  # noqa: ANN401 - the ProduceRequest of producing/requests.py
        return q.ProduceRequest(
            transactional_id=message.transactional_id,
            acks=message.acks,
            timeout=message.timeout,
            topic_data=tuple(
                q.TopicProduceData(
                    topic_id=by_id(message.topic_ids, topic.name),
                    partition_data=tuple(
                        q.PartitionProduceData(
                            index=partition_row.index, records=partition_row.records
                        )
                        for partition_row in topic.partition_data
                    ),
                )
                for topic in message.topic_data
            ),
        )

    def read(response: Any, request: Any) -> EntityResponse:  # noqa: ANN401 - of kio's
        return EntityResponse(
            entity=named.ProduceResponse(
                responses=tuple(
                    named.TopicProduceResponse(
                        name=name,
                        partition_responses=tuple(
                            named.PartitionProduceResponse(
                                index=entry.index,
                                error_code=entry.error_code,
                                base_offset=entry.base_offset,
                                log_append_time=entry.log_append_time,
                                log_start_offset=entry.log_start_offset,
                                record_errors=(),
                                error_message=entry.error_message,
                            )
                            for entry in topic.partition_responses
                        ),
                    )
                    for name, topic in with_names(response.responses, request)
                ),
                throttle_time=response.throttle_time,
            )
        )

    return with_writer(make_by_id(q.ProduceRequest, build, r.ProduceResponse, read), _write)


def _write(message: Any) -> bytes | None:  # noqa: ANN401 - the ProduceRequest
    """The body without kio, as each small batch has a request of its own; None if it lacks an id or
    the records."""
    ids: dict[str, bytes] = message.topic_ids or {}
    timeout = message.timeout // _MILLISECOND
    parts = [
        compact_string(message.transactional_id),
        _START.pack(message.acks, timeout),
        varint_bytes(len(message.topic_data) + 1),
    ]
    for topic in message.topic_data:
        topic_id = ids.get(topic.name)
        if topic_id is None or len(topic_id) != _ID_SIZE:
            return None
        parts += (topic_id, varint_bytes(len(topic.partition_data) + 1))
        for partition_row in topic.partition_data:
            if partition_row.records is None:
                return None
            size = varint_bytes(len(partition_row.records) + 1)
            parts += (_INDEX.pack(partition_row.index), size, partition_row.records, _NO_TAGS)
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)
