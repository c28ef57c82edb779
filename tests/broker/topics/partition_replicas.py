"""Where the replicas of a partition are, and which of them leads it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kio.schema.alter_partition_reassignments.v0 import request as reassignments
from kio.schema.alter_partition_reassignments.v0.response import (
    AlterPartitionReassignmentsResponse,
)
from kio.schema.elect_leaders.v2 import request as elections
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v9 import request as metadata9
from kio.schema.metadata.v9.response import MetadataResponse as Metadata9
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from asyncrevoke.broker.admin import Admin
from asyncrevoke.client.protocol.messages import Entities, EntityRequest

if TYPE_CHECKING:
    from asyncrevoke.broker.running import RunningBroker

_CONTROLLER_TIMEOUT = i32Timedelta.parse(datetime.timedelta(seconds=20))
_PREFERRED = i8(0)


class Replicas(NamedTuple):
    leader: int
    everyone: list[int]
    in_sync: list[int]


class DescribeTopics(EntityRequest[Metadata9], frozen=True, kw_only=True):
    """With the replicas that are in sync."""

    entities: ClassVar[Entities] = (metadata9.MetadataRequest, Metadata9)
    topics: tuple[metadata9.MetadataRequestTopic, ...]
    allow_auto_topic_creation: bool = False
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


def replicas(cluster: RunningBroker, topic: str, number: int = 0) -> Replicas:
    """Where a partition is, as a running broker knows it."""
    request = DescribeTopics(topics=(metadata9.MetadataRequestTopic(name=TopicName(topic)),))
    (described,) = Admin(cluster.admin_addresses[0])._response_to(request).topics
    (partition,) = (each for each in described.partitions if each.partition_index == number)
    return Replicas(
        int(partition.leader_id),
        [*map(int, partition.replica_nodes)],
        [*map(int, partition.isr_nodes)],
    )


class ReassignReplicas(
    EntityRequest[AlterPartitionReassignmentsResponse], frozen=True, kw_only=True
):
    """The first replica is the preferred leader."""

    entities: ClassVar[Entities] = (
        reassignments.AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    topics: tuple[reassignments.ReassignableTopic, ...]
    timeout: i32Timedelta = _CONTROLLER_TIMEOUT


class ElectLeaders(EntityRequest[ElectLeadersResponse], frozen=True, kw_only=True):
    """Makes the preferred replicas the leaders."""

    entities: ClassVar[Entities] = (elections.ElectLeadersRequest, ElectLeadersResponse)
    election_type: i8 = _PREFERRED
    topic_partitions: tuple[elections.TopicPartitions, ...] | None
    timeout: i32Timedelta = _CONTROLLER_TIMEOUT


def move_leader(cluster: RunningBroker, topic: str, number: int) -> int:
    """Make another replica of the partition its leader, while all brokers run; returns its id."""
    admin, name = Admin(cluster.admin_addresses[0]), TopicName(topic)
    leader, everyone, _ = replicas(cluster, topic, number)
    # By their ids, so that each replica leads the partition before one of them does again.
    in_turn = sorted(everyone)
    chosen = in_turn[(in_turn.index(leader) + 1) % len(in_turn)]
    ordered = (chosen, *(each for each in in_turn if each != chosen))
    partition = reassignments.ReassignablePartition(
        partition_index=i32(number), replicas=tuple(map(BrokerId, ordered))
    )
    wanted = reassignments.ReassignableTopic(name=name, partitions=(partition,))
    reassigned = admin._response_to(ReassignReplicas(topics=(wanted,)))
    results = [part.error_code for response in reassigned.responses for part in response.partitions]
    assert (reassigned.error_code, results) == (ErrorCode.none, [ErrorCode.none])
    elected = admin._response_to(
        ElectLeaders(
            topic_partitions=(elections.TopicPartitions(topic=name, partitions=(i32(number),)),)
        )
    )
    results = [
        part.error_code
        for result in elected.replica_election_results
        for part in result.partition_result
    ]
    assert (elected.error_code, results) == (ErrorCode.none, [ErrorCode.none])
    return chosen
