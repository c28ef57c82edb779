"""Brokers that respond to each request of the core as they should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.brokers.changing_log import ChangingLog

from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    encode_assignment_user_data,
)
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    EpochEnd,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
    PartitionMetadata,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
    TopicMetadata,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from asyncrevoke.client.model import TopicPartition

from fuzz.core_environment.cluster import IDS, PARTITIONS, TOPICS


class FuzzBrokers:
    """What brokers might say; ``draw`` decides."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.logs = {partition: ChangingLog(1) for partition in PARTITIONS}
        for log in self.logs.values():
            log.append(5)
            log.append(3, hole=2)
        self.generation = 0
        self.epoch = 1
        self.committed: dict[TopicPartition, int] = {}
        self.metadata: dict[TopicPartition, str] = {}

    def _error(self, *others: ErrorCode) -> ErrorCode:
        return self.draw.choice((*(ErrorCode.none,) * 8, *others))

    def _response(self, request: Request) -> Response:
        """What a broker might say."""
        return RESPONSES[type(request)](self, request)

    def metadata_response(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted(TOPICS) if request.topics is None else request.topics
        leader = self.draw.choice((1, 1, 1, 2))
        return MetadataResponse(
            brokers=tuple(
                BrokerMetadata(node_id=n, host=f"b{n}", port=9092, rack=None) for n in (1, 2)
            ),
            topics=tuple(
                TopicMetadata(
                    error=ErrorCode.none
                    if name in TOPICS
                    else ErrorCode.unknown_topic_or_partition,
                    name=name,
                    topic_id=IDS.get(name, bytes(16)),
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none,
                            partition=number,
                            leader_id=leader,
                            leader_epoch=0,
                            replicas=(1, 2),
                        )
                        for number in range(TOPICS.get(name, 0))
                    ),
                )
                for name in names
            ),
        )

    def coordinator_response(self, _request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        number = self.draw.choice((1, 1, 1, 2))
        return FindCoordinatorResponse(
            error=self._error(ErrorCode.coordinator_not_available),
            node_id=number,
            host=f"b{number}",
            port=9092,
        )

    def join_response(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id and request.group_instance_id is None and self.draw.random() < 0.8:
            return JoinGroupResponse(error=ErrorCode.member_id_required, member_id="m-1")
        member_id = request.member_id or "m-1"
        self.generation += self.draw.choice((1, 1, 1, 0, 2))
        us = JoinGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            metadata=request.protocols[0][1],
        )
        other = JoinGroupMember(
            member_id="m-2",
            group_instance_id=None,
            metadata=encode_subscription(
                Subscription(
                    topics=("orders", "bills"),
                    owned=tuple(self.draw.sample(PARTITIONS, self.draw.randrange(3))),
                    generation=self.generation - self.draw.randrange(3),
                )
            ),
        )
        leads = self.draw.random() < 0.4
        return JoinGroupResponse(
            error=self._error(
                ErrorCode.unknown_member_id,
                ErrorCode.not_coordinator,
                ErrorCode.rebalance_in_progress,
            ),
            generation=self.generation,
            protocol_name=request.protocols[0][0],
            leader=member_id if leads else self.draw.choice(("m-2", "m-2", "")),
            member_id=member_id,
            members=(us, other) if leads else (),
        )

    def sync_response(self, _request: SyncGroupRequest) -> SyncGroupResponse:
        mine = [tp for tp in PARTITIONS if self.draw.random() < 0.7]
        note = self.draw.choice(
            (b"", encode_assignment_user_data(AssignmentUserData(True, 7, True)))
        )
        return SyncGroupResponse(
            error=self._error(
                ErrorCode.rebalance_in_progress,
                ErrorCode.illegal_generation,
                ErrorCode.unknown_member_id,
            ),
            assignment=encode_assignment(mine, note),
        )

    def heartbeat_response(self, _request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(
            error=self._error(
                ErrorCode.rebalance_in_progress,
                ErrorCode.rebalance_in_progress,
                ErrorCode.illegal_generation,
                ErrorCode.unknown_member_id,
            )
        )

    def leave_response(self, _request: LeaveGroupRequest) -> LeaveGroupResponse:
        return LeaveGroupResponse(error=self._error(ErrorCode.unknown_member_id))

    def description(self, _request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            error=self._error(ErrorCode.coordinator_not_available),
            state=self.draw.choice(("", "Stable", "Dead", "x" * 300)),
            protocol_type=self.draw.choice(("", "consumer", "connect", "\n" * 300)),
            assignor=self.draw.choice(("", "range", "other", "\x1b[0m" * 100)),
        )

    def epoch_response(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(
                error=ErrorCode.none, member_epoch=request.member_epoch
            )
        assignment = None
        if request.member_epoch == 0 or self.draw.random() < 0.4:
            self.epoch += 1
            assignment = tuple(
                (IDS[topic], tuple(n for n in range(count) if self.draw.random() < 0.7))
                for topic, count in TOPICS.items()
            )
        return ConsumerGroupHeartbeatResponse(
            error=self._error(ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id),
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval=5.0,
            assignment=assignment,
        )

    def commit_response(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        error = self._error(ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)
        if error is ErrorCode.none:
            for entry in request.entries:
                self.committed[entry.partition] = entry.offset
                self.metadata[entry.partition] = entry.metadata
        return OffsetCommitResponse(
            errors=tuple((entry.partition, error) for entry in request.entries)
        )

    def offsets_response(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            error=self._error(ErrorCode.not_coordinator, ErrorCode.unstable_offset_commit),
            offsets=tuple(
                FetchedOffset(
                    partition=partition,
                    error=ErrorCode.none,
                    offset=self.committed.get(partition, -1),
                    metadata=self.metadata.get(partition, ""),
                )
                for partition in request.partitions
            ),
        )

    def listed_response(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            offsets=tuple(
                ListedOffset(
                    partition=query.partition,
                    error=self._error(ErrorCode.not_leader_or_follower),
                    offset=log.start if query.timestamp == -2 else log.end,
                    leader_epoch=0,
                )
                for query in request.queries
                if (log := self.logs.get(query.partition)) is not None
            )
        )

    def epochs_response(
        self, request: OffsetsForLeaderEpochRequest
    ) -> OffsetsForLeaderEpochResponse:
        return OffsetsForLeaderEpochResponse(
            ends=tuple(
                EpochEnd(
                    partition=query.partition,
                    error=ErrorCode.none,
                    epoch=query.epoch,
                    offset=log.end,
                )
                for query in request.queries
                if (log := self.logs.get(query.partition)) is not None
            )
        )

    def fetch_response(self, request: FetchRequest) -> FetchResponse:
        found: list[FetchedPartition] = []
        for wanted in request.partitions:
            log = self.logs.get(wanted.partition)
            if log is None:
                continue
            inside = log.start <= wanted.offset <= log.end
            found.append(
                FetchedPartition(
                    partition=wanted.partition,
                    error=ErrorCode.none if inside else ErrorCode.offset_out_of_range,
                    high_watermark=log.end,
                    last_stable_offset=log.end,
                    log_start_offset=log.start,
                    records=log.read(wanted.offset, wanted.max_bytes) if inside else b"",
                )
            )
        session = self.draw.choice((0, 0, 7))
        return FetchResponse(error=ErrorCode.none, session_id=session, partitions=tuple(found))


RESPONSES: dict[type, Callable[[FuzzBrokers, Any], Response]] = {
    MetadataRequest: FuzzBrokers.metadata_response,
    FindCoordinatorRequest: FuzzBrokers.coordinator_response,
    JoinGroupRequest: FuzzBrokers.join_response,
    SyncGroupRequest: FuzzBrokers.sync_response,
    HeartbeatRequest: FuzzBrokers.heartbeat_response,
    LeaveGroupRequest: FuzzBrokers.leave_response,
    DescribeGroupsRequest: FuzzBrokers.description,
    ConsumerGroupHeartbeatRequest: FuzzBrokers.epoch_response,
    OffsetCommitRequest: FuzzBrokers.commit_response,
    OffsetFetchRequest: FuzzBrokers.offsets_response,
    ListOffsetsRequest: FuzzBrokers.listed_response,
    OffsetsForLeaderEpochRequest: FuzzBrokers.epochs_response,
    FetchRequest: FuzzBrokers.fetch_response,
}
