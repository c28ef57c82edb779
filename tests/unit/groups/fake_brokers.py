"""Two brokers with groups that a test describes."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from kio.schema.alter_share_group_offsets.v0 import response as altered
from kio.schema.consumer_group_describe.v0 import response as modern
from kio.schema.delete_groups.v2 import response as deleted_groups
from kio.schema.delete_share_group_offsets.v0 import response as deleted
from kio.schema.describe_groups.v5 import response as classic
from kio.schema.describe_share_group_offsets.v1 import response as share_offsets
from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1 import response as share
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64
from unit.core.scripted_brokers import tp

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError, UnsupportedRequestError
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import TopicPartition


NOW = i32Timedelta.parse(datetime.timedelta(0))


NODES = {1: "b1:9092", 2: "b2:9092"}


def classic_member(
    name: str,
    *assigned: TopicPartition,
    owned: tuple[TopicPartition, ...] = (),
    instance: str | None = None,
    topics: tuple[str, ...] = ("orders",),
) -> classic.DescribedGroupMember:
    subscription = Subscription(topics=topics, owned=owned, rack="east")
    return classic.DescribedGroupMember(
        member_id=f"{name}-id",
        group_instance_id=instance,
        client_id=name,
        client_host=f"/10.0.0.{len(name)}",
        member_metadata=encode_subscription(subscription),
        member_assignment=encode_assignment(assigned),
    )


def modern_member(
    name: str, epoch: int, assigned: tuple[int, ...], target: tuple[int, ...]
) -> modern.Member:
    def assignment(numbers: tuple[int, ...]) -> modern.Assignment:
        topic = modern.TopicPartitions(
            topic_id=None, topic_name=TopicName("orders"), partitions=tuple(map(i32, numbers))
        )
        return modern.Assignment(topic_partitions=(topic,))

    return modern.Member(
        member_id=f"{name}-id",
        member_epoch=i32(epoch),
        client_id=name,
        client_host="/10.0.0.1",
        subscribed_topic_names=(TopicName("orders"),),
        assignment=assignment(assigned),
        target_assignment=assignment(target),
    )


def share_member(name: str, *assigned: int) -> share.Member:
    topic = share.TopicPartitions(
        topic_id=None, topic_name=TopicName("orders"), partitions=tuple(map(i32, assigned))
    )
    return share.Member(
        member_id=f"{name}-id",
        member_epoch=i32(7),
        client_id=name,
        client_host="/10.0.0.1",
        subscribed_topic_names=(TopicName("orders"),),
        assignment=share.Assignment(topic_partitions=(topic,)),
    )


class FakeBrokers(GroupsClient):
    """Two brokers, topic orders with 4 partitions of which broker 1 leads the even ones."""

    def __init__(self) -> None:
        self.state = "Stable"
        self.protocol_type = "consumer"
        self.classic: tuple[classic.DescribedGroupMember, ...] = ()
        self.modern: tuple[modern.Member, ...] | None = None
        # None: it is not a share group.
        self.share: tuple[share.Member, ...] | None = None
        self.share_error = ErrorCode.none
        # Start offset and lag by partition.
        self.share_offsets = {0: (0, 4), 1: (20, 0)}
        self.changed: list[object] = []
        self.change_error = ErrorCode.none
        # Of single partitions or topics.
        self.change_errors: dict[int | str, ErrorCode] = {}
        # Partitions of a commit that the response lacks, and the group it is about in place of the
        # one that was asked for.
        self.unanswered: frozenset[int] = frozenset()
        self.answers_about = ""
        self.not_offered: frozenset[type[messages.Request]] = frozenset()
        self.error = ErrorCode.none
        # Before `error`, from the last to the first.
        self.errors: list[ErrorCode] = []
        self.committed = {0: 10, 1: 20}
        self.listed: Any = None
        self.speaks_modern = True
        self.speaks_classic = True
        self.dead_leader: int | None = None
        self.log_start = 0
        self.end = 25
        # The first record from the first second of 1970 on.
        self.at_second = 12
        self.asked: list[tuple[int, str]] = []

    def brokers(self) -> dict[int, str]:
        return NODES

    async def coordinator(self, group: str) -> int:
        return 2

    async def metadata(self, topics: Iterable[str]) -> messages.MetadataResponse:
        if list(topics) != ["orders"]:
            return messages.MetadataResponse(brokers=(), topics=())
        partitions = tuple(
            messages.PartitionMetadata(
                error=ErrorCode.none, partition=number, leader_id=number % 2 + 1
            )
            for number in range(4)
        )
        topic = messages.TopicMetadata(error=ErrorCode.none, name="orders", partitions=partitions)
        return messages.MetadataResponse(brokers=(), topics=(topic,))

    async def ask(self, node: int, request: messages.EntityRequest[Any]) -> Any:
        self.asked.append((node, type(request).__name__))
        if type(request) in self.not_offered:
            raise UnsupportedRequestError(f"the broker does not offer {type(request).__name__}")
        match request:
            case requests.ListGroupsRequest():
                return self.listed(node)
            case requests.DescribeGroupsRequest():
                return self._classic(node, request)
            case requests.ShareGroupDescribeRequest():
                return self._share()
            case requests.DescribeShareGroupOffsetsRequest():
                return self._share_offsets()
            case requests.AlterShareGroupOffsetsRequest():
                return self._alter_share_offsets(request)
            case requests.DeleteShareGroupOffsetsRequest():
                return self._delete_share_offsets(request)
            case requests.DeleteGroupsRequest():
                return self._delete_groups(request)
            case _:
                return self._modern(node, request)

    async def send(self, node: int, request: messages.Request, expected: type[Any]) -> Any:
        self.asked.append((node, type(request).__name__))
        if isinstance(request, messages.ListOffsetsRequest):
            return self._offsets(node, request)
        if isinstance(request, messages.OffsetCommitRequest):
            return self._commit(request)
        assert request == requests.committed("billing")
        return self._committed()

    def _classic(self, node: int, _request: object) -> object:
        assert node == 2
        if not self.speaks_classic:
            raise UnsupportedRequestError("the broker does not offer DescribeGroups")
        group = classic.DescribedGroup(
            error_code=self.errors.pop() if self.errors else self.error,
            group_id=GroupId("billing"),
            # A share group looks as if it did not exist.
            group_state=self.state if self.share is None else "Dead",
            protocol_type=self.protocol_type if self.share is None else "",
            protocol_data="cooperative-sticky" if self.state == "Stable" else "",
            members=self.classic,
        )
        return classic.DescribeGroupsResponse(throttle_time=NOW, groups=(group,))

    def _modern(self, node: int, _request: object) -> object:
        if not self.speaks_modern:
            raise UnsupportedRequestError("the broker does not offer it")
        group = modern.DescribedGroup(
            error_code=ErrorCode.group_id_not_found if self.modern is None else self.error,
            group_id=GroupId("billing"),
            group_state=self.state,
            group_epoch=i32(7),
            assignment_epoch=i32(7),
            assignor_name="uniform",
            members=self.modern or (),
        )
        return modern.ConsumerGroupDescribeResponse(throttle_time=NOW, groups=(group,))

    def _share(self) -> object:
        code = ErrorCode.group_id_not_found if self.share is None else self.share_error
        group = share.DescribedGroup(
            error_code=code,
            group_id=GroupId("billing"),
            group_state=self.state,
            group_epoch=i32(7),
            assignment_epoch=i32(7),
            assignor_name="simple",
            members=self.share or (),
        )
        return share.ShareGroupDescribeResponse(throttle_time=NOW, groups=(group,))

    def _share_offsets(self) -> object:
        partitions = tuple(
            share_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=i32(number),
                start_offset=i64(start),
                leader_epoch=i32(0),
                lag=i64(lag),
                error_code=ErrorCode.none,
            )
            for number, (start, lag) in self.share_offsets.items()
        )
        topic = share_offsets.DescribeShareGroupOffsetsResponseTopic(
            topic_name=TopicName("orders"), topic_id=None, partitions=partitions
        )
        group = share_offsets.DescribeShareGroupOffsetsResponseGroup(
            group_id=GroupId("billing"), topics=(topic,), error_code=ErrorCode.none
        )
        return share_offsets.DescribeShareGroupOffsetsResponse(throttle_time=NOW, groups=(group,))

    def _alter_share_offsets(self, request: requests.AlterShareGroupOffsetsRequest) -> object:
        self.changed.append(
            {
                (topic.topic_name, int(partition.partition_index)): int(partition.start_offset)
                for topic in request.topics
                for partition in topic.partitions
            }
        )
        responses = tuple(
            altered.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=None,
                partitions=tuple(
                    altered.AlterShareGroupOffsetsResponsePartition(
                        partition_index=each.partition_index,
                        error_code=self.change_errors.get(
                            int(each.partition_index), ErrorCode.none
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return altered.AlterShareGroupOffsetsResponse(
            throttle_time=NOW, error_code=self.change_error, responses=responses
        )

    def _delete_share_offsets(self, request: requests.DeleteShareGroupOffsetsRequest) -> object:
        self.changed.append([topic.topic_name for topic in request.topics])
        responses = tuple(
            deleted.DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=None,
                error_code=self.change_errors.get(topic.topic_name, ErrorCode.none),
            )
            for topic in request.topics
        )
        return deleted.DeleteShareGroupOffsetsResponse(
            throttle_time=NOW, error_code=self.change_error, responses=responses
        )

    def _commit(self, request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
        assert (request.generation, request.member_id) == (-1, "")
        changed = {entry.partition: entry.offset for entry in request.entries}
        self.changed.append({(tp.topic, tp.partition): offset for tp, offset in changed.items()})
        codes = {
            tp: self.change_errors.get(tp.partition, self.change_error)
            for tp in changed
            if tp.partition not in self.unanswered
        }
        return messages.OffsetCommitResponse(errors=tuple(codes.items()))

    def _delete_groups(self, request: requests.DeleteGroupsRequest) -> object:
        self.changed.append(request.groups_names)
        results = tuple(
            deleted_groups.DeletableGroupResult(
                group_id=GroupId(self.answers_about or name), error_code=self.change_error
            )
            for name in request.groups_names
        )
        return deleted_groups.DeleteGroupsResponse(throttle_time=NOW, results=results)

    def _committed(self) -> messages.OffsetFetchResponse:
        return messages.OffsetFetchResponse(
            error=ErrorCode.none,
            offsets=tuple(
                messages.FetchedOffset(partition=tp(number), error=ErrorCode.none, offset=offset)
                for number, offset in (self.committed.items() if self.share is None else ())
            ),
        )

    def _offsets(
        self, node: int, request: messages.ListOffsetsRequest
    ) -> messages.ListOffsetsResponse:
        if node == self.dead_leader:
            raise GroupsError("the broker does not respond")
        asked = [query.partition for query in request.queries]
        assert all(partition.partition % 2 + 1 == node for partition in asked)
        offsets = {
            1_000: self.at_second,
            messages.EARLIEST_TIMESTAMP: self.log_start,
            messages.LATEST_TIMESTAMP: self.end,
        }
        return messages.ListOffsetsResponse(
            offsets=tuple(
                messages.ListedOffset(
                    partition=query.partition,
                    error=ErrorCode.none,
                    offset=offsets[query.timestamp],
                )
                for query in request.queries
            )
        )
