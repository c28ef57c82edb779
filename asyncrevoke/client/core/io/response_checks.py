"""Checks each response that enters the core for contradictions.

A decoded response may still be impossible: no member has an empty id, and no generation is
negative. Such a response counts as none: the request fails, its connection is dropped, and the part
of the core that sent it retries. An error that concerns one partition only, such as a partition
that was not requested, is ignored by that part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrevoke.client.config.topics import MAX_ASSIGNED
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    FetchResponse,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
    Request,
    Response,
)
from asyncrevoke.client.protocol.share_messages import (
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.protocol.messages import BrokerMetadata, TopicIdPartitions
    from asyncrevoke.client.protocol.share_messages import ShareFetchedPartition

_LARGEST_PORT = 65535
# More than any cluster has: each is handled on the event loop.
_MOST_BROKERS = 10_000
# Transactions that were open at one time, beside those that have a batch in the response.
_MOST_OPEN_TRANSACTIONS = 100_000
_SMALLEST_BATCH = 61
_MOST_UNREQUESTED = 1_000
# Far more than a broker lets a group lock in a partition, even if it locks whole batches.
_MOST_ACQUIRED = 1_000_000


def find_contradiction(request: Request, response: Response) -> str | None:
    """What in ``response`` cannot be true for ``request``; None if nothing."""
    check = _CHECKS.get(type(response))
    return None if check is None else check(request, response)


def check_address(node_id: int, host: str, port: int) -> str | None:
    """What cannot be true of a broker's address; None if nothing."""
    if node_id < 0 or not host or not 0 < port <= _LARGEST_PORT:
        return f"a broker {node_id} at {host[:100]!r}, port {port}"
    return None


def _check_count(brokers: Sequence[BrokerMetadata]) -> str | None:
    if len(brokers) > _MOST_BROKERS:
        return f"{len(brokers)} brokers, more than {_MOST_BROKERS}"
    return None


def _check_metadata(_request: Request, response: MetadataResponse) -> str | None:
    if (wrong := _check_count(response.brokers)) is not None:
        return wrong
    for broker in response.brokers:
        if (wrong := check_address(broker.node_id, broker.host, broker.port)) is not None:
            return wrong
    return None


def _check_coordinator(_request: Request, response: FindCoordinatorResponse) -> str | None:
    if response.error is not ErrorCode.none:
        return None
    return check_address(response.node_id, response.host, response.port)


def _check_fetch(_request: Request, response: FetchResponse) -> str | None:
    if (wrong := _check_count(response.leaders)) is not None:
        return wrong
    aborted = sum(len(fetched.aborted) for fetched in response.partitions)
    if aborted > _MOST_OPEN_TRANSACTIONS:
        batches = sum(len(fetched.records) for fetched in response.partitions) // _SMALLEST_BATCH
        if aborted > _MOST_OPEN_TRANSACTIONS + batches:
            return f"{aborted} aborted transactions, and at most {batches} batches"
    return None


def _check_commit(request: Request, response: OffsetCommitResponse) -> str | None:
    requested = len(request.entries) if isinstance(request, OffsetCommitRequest) else 0
    return _check_partitions(requested, response.errors)


def _check_committed(request: Request, response: OffsetFetchResponse) -> str | None:
    if not isinstance(request, OffsetFetchRequest) or request.all_partitions:
        return None
    return _check_partitions(len(request.partitions), response.offsets)


def _check_offsets(request: Request, response: ListOffsetsResponse) -> str | None:
    requested = len(request.queries) if isinstance(request, ListOffsetsRequest) else 0
    return _check_partitions(requested, response.offsets)


def _check_epoch_ends(request: Request, response: OffsetsForLeaderEpochResponse) -> str | None:
    requested = len(request.queries) if isinstance(request, OffsetsForLeaderEpochRequest) else 0
    return _check_partitions(requested, response.ends)


def _check_partitions(requested: int, responses: Sequence[object]) -> str | None:
    """A few partitions that were not requested are ignored by the part that has asked."""
    if len(responses) > requested + _MOST_UNREQUESTED:
        return f"{len(responses)} partitions, of {requested} requested ones"
    return None


def _check_join(request: Request, response: JoinGroupResponse) -> str | None:
    has_id = isinstance(request, JoinGroupRequest) and request.member_id
    if response.error is ErrorCode.member_id_required and has_id:
        return "a member id is required of a member that has sent one"
    if response.error not in (ErrorCode.none, ErrorCode.member_id_required):
        return None
    if not response.member_id:
        return "the member id is empty"
    if response.error is ErrorCode.none and response.generation < 0:
        return f"generation {response.generation}"
    return None


def _check_epoch(request: Request, response: ConsumerGroupHeartbeatResponse) -> str | None:
    leaves = (
        isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch < JOIN_EPOCH
    )
    if response.error is not ErrorCode.none or leaves:
        return None
    if response.member_epoch <= JOIN_EPOCH:
        return f"member epoch {response.member_epoch}"
    return _check_assignment(response.assignment or ())


def _check_assignment(assignment: Sequence[TopicIdPartitions]) -> str | None:
    count = sum(max(len(numbers), 1) for _, numbers in assignment)
    if count > MAX_ASSIGNED:
        return f"an assignment of {count} partitions, more than {MAX_ASSIGNED}"
    lowest = min((min(numbers, default=0) for _, numbers in assignment), default=0)
    return f"partition {lowest} is assigned" if lowest < 0 else None


def _check_share_epoch(request: Request, response: ShareGroupHeartbeatResponse) -> str | None:
    leaves = isinstance(request, ShareGroupHeartbeatRequest) and request.member_epoch < JOIN_EPOCH
    if response.error is not ErrorCode.none or leaves:
        return None
    if response.member_epoch <= JOIN_EPOCH:
        return f"member epoch {response.member_epoch}"
    return _check_assignment(response.assignment or ())


def _check_share_fetch(_request: Request, response: ShareFetchResponse) -> str | None:
    if (wrong := _check_count(response.leaders)) is not None:
        return wrong
    acquired = 0
    for fetched in response.partitions:
        if (wrong := _check_acquired(fetched)) is not None:
            return wrong
        acquired += len(fetched.acquired)
    if acquired and response.lock_timeout <= 0:
        return f"records are acquired for {response.lock_timeout} s"
    return None


def _check_acquired(fetched: ShareFetchedPartition) -> str | None:
    end = -1
    for acquired in fetched.acquired:
        if not end < acquired.first_offset <= acquired.last_offset:
            return f"offsets {acquired.first_offset} to {acquired.last_offset} acquired after {end}"
        if acquired.last_offset - acquired.first_offset >= _MOST_ACQUIRED:
            return f"{acquired.last_offset - acquired.first_offset + 1} offsets acquired at once"
        end = acquired.last_offset
    return None


# By the type of the response. A response to another request fails in the part that has asked.
_CHECKS: dict[type[Response], Callable[[Any, Any], str | None]] = {
    MetadataResponse: _check_metadata,
    FindCoordinatorResponse: _check_coordinator,
    FetchResponse: _check_fetch,
    JoinGroupResponse: _check_join,
    ConsumerGroupHeartbeatResponse: _check_epoch,
    OffsetCommitResponse: _check_commit,
    OffsetFetchResponse: _check_committed,
    ListOffsetsResponse: _check_offsets,
    OffsetsForLeaderEpochResponse: _check_epoch_ends,
    ShareGroupHeartbeatResponse: _check_share_epoch,
    ShareFetchResponse: _check_share_fetch,
}
