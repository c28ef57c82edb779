"""Requests and responses of share groups on a line, for the trace of a failure."""

from __future__ import annotations

from typing import NamedTuple

from asyncrevoke.client.protocol.share_messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
)


class Passed(NamedTuple):
    """A message to a broker, or from one."""

    way: str
    node_id: int
    message: object


def describe(message: object) -> str:
    """A message, and where it goes or comes from, on a line for a trace."""
    if isinstance(message, Passed):
        return f"{message.way} {message.node_id} {describe(message.message)}"
    if isinstance(message, (ShareFetchRequest, ShareAcknowledgeRequest)):
        acks = [
            f"{entry.partition.partition}:{b.type.name} {b.first_offset}-{b.last_offset}"
            for entry in message.partitions
            for b in entry.acknowledgements
        ]
        most = f" most {message.max_records}" if isinstance(message, ShareFetchRequest) else ""
        kind = type(message).__name__.removesuffix("Request")
        return f"{kind} epoch {message.session_epoch}{most} {' '.join(acks)}"
    if isinstance(message, ShareFetchResponse):
        ranges = [
            f"{p.partition.partition}:{p.error.name}/{p.acknowledge_error.name} "
            + ",".join(f"{a.first_offset}-{a.last_offset}#{a.delivery_count}" for a in p.acquired)
            for p in message.partitions
        ]
        return f"ShareFetch {message.error.name} {' '.join(ranges)}"
    if isinstance(message, ShareGroupHeartbeatRequest):
        return f"Heartbeat epoch {message.member_epoch}"
    if isinstance(message, ShareAcknowledgeResponse):
        errors = [f"{part.partition.partition}:{part.error.name}" for part in message.partitions]
        return f"ShareAcknowledge {message.error.name} {' '.join(errors)}"
    return str(message)
