"""Every request that we speak, in each version that we speak, sent to a real Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from broker.kafka_release import kafka_release
from broker.requests.fetched_records import produce, read_all

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.protocol.share_messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SharePartition,
    TopicIdPartition,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from asyncrevoke.client.runtime.net.connection import Connection
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from broker.requests.wire_client import WireClient

    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker

_PREFERRED, _OTHER, _OLDEST = 0, 1, -1
_OFFERS_EVERY_VERSION = (4, 2)
_BY_ID: dict[type[messages.Request], int] = {
    messages.OffsetCommitRequest: 10,
    messages.OffsetFetchRequest: 10,
}


@pytest.fixture(params=[_PREFERRED, _OTHER, _OLDEST], ids=["preferred", "other", "oldest"])
def used_versions(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> dict[type[messages.KafkaMessage], int]:
    """Makes the client use the preferred versions that the broker offers, or the others; what it
    used is noted here."""
    choose = codec.choose_version
    which: int = request.param
    used: dict[type[messages.KafkaMessage], int] = {}

    def pick(
        message_type: type[messages.Request],
        broker_versions: dict[int, tuple[int, int]],
        *,
        by_id: bool,
        highest: int,
    ) -> int:
        assert highest == messages.NEWEST
        choose(message_type, broker_versions)
        lowest, highest = broker_versions[codec.api_key(message_type)]
        supported = codec.versions(message_type)
        offered = [version for version in supported if lowest <= version <= highest]
        if kafka_release() >= _OFFERS_EVERY_VERSION:
            assert offered == [*supported], f"not all versions of {message_type} are offered"
        # Of share groups there is one.
        version = offered[which] if which < len(offered) else offered[0]
        assert by_id or version != _BY_ID.get(message_type)
        used[message_type] = version
        return version

    monkeypatch.setattr(codec, "choose_version", pick)
    return used


async def test_every_request_gets_a_response_in_each_version(
    client: WireClient,
    kafka_topic: str,
    kafka_broker: RunningBroker,
    used_versions: dict[type[messages.KafkaMessage], int],
) -> None:
    group = f"group-of-{kafka_topic}"
    tp = TopicPartition(kafka_topic, 0)
    await produce(kafka_broker.bootstrap_servers, kafka_topic, 3)

    metadata = await client.ask(
        messages.MetadataRequest(topics=(kafka_topic, "no-such-topic")), messages.MetadataResponse
    )
    (broker, *_) = metadata.brokers
    topics = {topic.name: topic for topic in metadata.topics}
    assert topics["no-such-topic"].error is ErrorCode.unknown_topic_or_partition
    assert topics[kafka_topic].error is ErrorCode.none
    assert len(topics[kafka_topic].partitions) == 4
    assert topics[kafka_topic].partitions[0].leader_id == broker.node_id
    assert topics[kafka_topic].partitions[0].leader_epoch >= 0
    has_topic_id = used_versions[messages.MetadataRequest] >= 10
    assert any(topics[kafka_topic].topic_id) is has_topic_id
    topic_ids = {kafka_topic: topics[kafka_topic].topic_id} if has_topic_id else None
    everything = await client.ask(messages.MetadataRequest(topics=None), messages.MetadataResponse)
    assert kafka_topic in {topic.name for topic in everything.topics}
    nothing = await client.ask(messages.MetadataRequest(topics=()), messages.MetadataResponse)
    assert nothing.topics == ()

    async def find_coordinator() -> messages.FindCoordinatorResponse:
        return await client.ask(
            messages.FindCoordinatorRequest(group_id=group), messages.FindCoordinatorResponse
        )

    coordinator = await find_coordinator()
    while coordinator.error is ErrorCode.coordinator_not_available:
        coordinator = await find_coordinator()
    assert coordinator.error is ErrorCode.none
    assert (coordinator.host, coordinator.port) == (broker.host, broker.port)

    subscription = Subscription(topics=(kafka_topic,), owned=(tp,), generation=4, rack="r")

    def join(member_id: str) -> messages.JoinGroupRequest:
        return messages.JoinGroupRequest(
            group_id=group,
            session_timeout=10,
            rebalance_timeout=10,
            member_id=member_id,
            group_instance_id=None,
            protocols=(("range", encode_subscription(subscription)),),
            reason="a test",
        )

    async def joined_as(member_id: str) -> messages.JoinGroupResponse:
        return await client.ask(join(member_id), messages.JoinGroupResponse, Channel.JOIN)

    joined = await joined_as("")
    while joined.error is not ErrorCode.none:
        assert joined.error in {
            ErrorCode.member_id_required,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.not_coordinator,
        }
        joined = await joined_as(joined.member_id)
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert joined.generation == 1
    assert decode_subscription(joined.members[0].metadata) == subscription
    me = joined.member_id

    synced = await client.ask(
        messages.SyncGroupRequest(
            group_id=group,
            generation=1,
            member_id=me,
            group_instance_id=None,
            protocol_name="range",
            assignments=((me, encode_assignment([tp])),),
        ),
        messages.SyncGroupResponse,
        Channel.JOIN,
    )
    assert synced.error is ErrorCode.none
    assert decode_assignment(synced.assignment) == ((tp,), b"")

    described = await client.ask(
        messages.DescribeGroupsRequest(group_id=group), messages.DescribeGroupsResponse
    )
    assert described == messages.DescribeGroupsResponse(
        error=ErrorCode.none, state="Stable", protocol_type="consumer", assignor="range"
    )

    async def heartbeat(generation: int) -> ErrorCode:
        response = await client.ask(
            messages.HeartbeatRequest(
                group_id=group, generation=generation, member_id=me, group_instance_id=None
            ),
            messages.HeartbeatResponse,
            Channel.HEARTBEAT,
        )
        return response.error

    assert await heartbeat(1) is ErrorCode.none
    assert await heartbeat(9) is ErrorCode.illegal_generation

    committed = await client.ask(
        messages.OffsetCommitRequest(
            group_id=group,
            generation=1,
            member_id=me,
            group_instance_id=None,
            entries=(
                messages.CommitEntry(partition=tp, offset=2, leader_epoch=0, metadata="märk"),
            ),
            topic_ids=topic_ids,
        ),
        messages.OffsetCommitResponse,
        Channel.COMMIT,
    )
    assert committed.errors == ((tp, ErrorCode.none),)

    offsets = await client.ask(
        messages.OffsetFetchRequest(
            group_id=group,
            partitions=(tp, TopicPartition(kafka_topic, 1)),
            topic_ids=topic_ids,
        ),
        messages.OffsetFetchResponse,
    )
    assert offsets.error is ErrorCode.none
    assert {
        (o.partition.partition, o.offset, o.leader_epoch, o.metadata) for o in offsets.offsets
    } == {
        (0, 2, 0, "märk"),
        (1, -1, -1, ""),
    }

    listed = await client.ask(
        messages.ListOffsetsRequest(
            queries=tuple(
                messages.OffsetQuery(partition=TopicPartition(kafka_topic, number), timestamp=time)
                for number, time in (
                    (0, messages.LATEST_TIMESTAMP),
                    (1, messages.EARLIEST_TIMESTAMP),
                    (2, 1001),
                )
            ),
        ),
        messages.ListOffsetsResponse,
    )
    assert {o.partition.partition: o.offset for o in listed.offsets} == {0: 3, 1: 0, 2: -1}
    by_time = await client.ask(
        messages.ListOffsetsRequest(
            queries=(messages.OffsetQuery(partition=tp, timestamp=1001),), read_committed=True
        ),
        messages.ListOffsetsResponse,
    )
    assert (by_time.offsets[0].offset, by_time.offsets[0].timestamp) == (1, 1001)

    async def end_of_epoch(epoch: int, leader_epoch: int) -> messages.EpochEnd:
        response = await client.ask(
            messages.OffsetsForLeaderEpochRequest(
                queries=(messages.EpochQuery(partition=tp, epoch=epoch, leader_epoch=leader_epoch),)
            ),
            messages.OffsetsForLeaderEpochResponse,
        )
        return response.ends[0]

    end = await end_of_epoch(0, 0)
    assert (end.error, end.epoch, end.offset) == (ErrorCode.none, 0, 3)
    later = await end_of_epoch(5, 0)
    assert (later.error, later.epoch, later.offset) == (ErrorCode.none, -1, -1)
    assert (await end_of_epoch(0, 9)).error is ErrorCode.unknown_leader_epoch

    records, _ = await read_all(client, tp, False, lambda records, _: len(records) >= 3, topic_ids)
    assert [record.value for record in records] == [b"value 0", b"value 1", b"value 2"]

    left = await client.ask(
        messages.LeaveGroupRequest(
            group_id=group, member_id=me, group_instance_id=None, reason="the test is over"
        ),
        messages.LeaveGroupResponse,
        Channel.HEARTBEAT,
    )
    assert left.error is ErrorCode.none
    gone = await client.ask(
        messages.LeaveGroupRequest(group_id=group, member_id=me, group_instance_id=None),
        messages.LeaveGroupResponse,
        Channel.HEARTBEAT,
    )
    assert gone.error is ErrorCode.unknown_member_id

    def beat(epoch: int, **told: Any) -> messages.ConsumerGroupHeartbeatRequest:
        return messages.ConsumerGroupHeartbeatRequest(
            group_id=f"{group}-by-epochs",
            member_id="me",
            member_epoch=epoch,
            group_instance_id=None,
            **told,
        )

    async def response_to(epoch: int, **told: Any) -> messages.ConsumerGroupHeartbeatResponse:
        return await client.ask(
            beat(epoch, **told), messages.ConsumerGroupHeartbeatResponse, Channel.HEARTBEAT
        )

    member = await response_to(0, topics=(kafka_topic,), rebalance_timeout=10.0, owned=())
    while member.error is ErrorCode.coordinator_load_in_progress:
        member = await response_to(0, topics=(kafka_topic,), rebalance_timeout=10.0, owned=())
    assert (member.error, member.member_id) == (ErrorCode.none, "me")
    assert member.heartbeat_interval > 0
    assert member.assignment is not None
    ((topic_id, numbers),) = member.assignment
    assert sorted(numbers) == [0, 1, 2, 3]
    if has_topic_id:
        assert topic_id == topics[kafka_topic].topic_id
    quiet = await response_to(member.member_epoch)
    assert (quiet.error, quiet.assignment) == (ErrorCode.none, None)
    assert (await response_to(member.member_epoch + 1)).error is ErrorCode.fenced_member_epoch
    assert (await response_to(messages.LEAVE_EPOCH)).error is ErrorCode.none
    await ask_of_share_group(client, f"{group}-shared", kafka_topic)
    assert set(used_versions) == set(codec.REQUESTS)


async def ask_of_share_group(client: WireClient, group: str, topic: str) -> None:
    """Join, fetch in a session, close it and leave."""

    async def response_to(epoch: int, **told: Any) -> ShareGroupHeartbeatResponse:
        return await client.ask(
            ShareGroupHeartbeatRequest(group_id=group, member_id="me", member_epoch=epoch, **told),
            ShareGroupHeartbeatResponse,
            Channel.HEARTBEAT,
        )

    member = await response_to(0, topics=(topic,))
    while member.error is ErrorCode.coordinator_load_in_progress:
        member = await response_to(0, topics=(topic,))
    assert member.error is ErrorCode.none
    async with asyncio.timeout(20):
        while not member.assignment:
            await asyncio.sleep(0.2)
            member = await response_to(member.member_epoch)
    ((topic_id, numbers),) = member.assignment
    assert sorted(numbers) == [0, 1, 2, 3]
    opened = await client.ask(
        ShareFetchRequest(
            group_id=group,
            member_id="me",
            session_epoch=0,
            partitions=tuple(
                SharePartition(partition=TopicIdPartition(topic_id, number)) for number in numbers
            ),
            max_wait=0.0,
            min_bytes=1,
            max_bytes=2**20,
            max_records=1,
            batch_size=1,
            exact=True,
        ),
        ShareFetchResponse,
        Channel.SHARE,
    )
    assert opened.error is ErrorCode.none
    closed = await client.ask(
        ShareAcknowledgeRequest(group_id=group, member_id="me", session_epoch=-1, partitions=()),
        ShareAcknowledgeResponse,
        Channel.SHARE,
    )
    assert closed.error is ErrorCode.none
    assert (await response_to(messages.LEAVE_EPOCH)).error is ErrorCode.none


async def test_a_connection_is_shared_until_it_is_closed(client: WireClient) -> None:
    config = ConsumerConfig(bootstrap_servers=f"{client.node.host}:{client.node.port}")
    threads, buffers = DecodeThreads(), ReceiveBuffers(0)
    connection = await Connection.open(client.node, config, threads, buffers, within=10)
    responses = await asyncio.gather(
        *(connection.request(messages.MetadataRequest(topics=()), within=10) for _ in range(20))
    )
    assert len(responses) == 20
    await connection.close()
    assert not connection.connected


async def test_a_closed_port_is_unreachable(client: WireClient) -> None:
    nobody = Node(7, "127.0.0.1", 1)
    failed = await client.channels.request(
        Send(3, messages.MetadataRequest(topics=()), nobody, Channel.METADATA, 5)
    )
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.kind) == (3, FailureKind.UNREACHABLE)
    assert "broker 7 at 127.0.0.1:1" in failed.detail
