"""Every request that we speak, in each version that we speak, answered by a real Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.core.fetch.session import FetchSession
from asyncrevoke.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.protocol import codec, messages
from asyncrevoke.protocol.messages import ErrorCode
from asyncrevoke.protocol.records import decode_batches
from asyncrevoke.protocol.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from asyncrevoke.runtime.net.channels import Channels
from asyncrevoke.runtime.net.connection import Connection
from asyncrevoke.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker

_T = TypeVar("_T", bound=messages.Message)
_PREFERRED, _OTHER, _OLDEST = 0, 1, -1
_BY_ID: dict[type[messages.Request], int] = {
    messages.OffsetCommitRequest: 10,
    messages.OffsetFetchRequest: 10,
}


class Client:
    """Asks one broker and expects answers."""

    def __init__(self, channels: Channels, node: Node) -> None:
        self.channels = channels
        self.node = node

    async def ask(
        self, message: messages.Request, answer: type[_T], channel: Channel = Channel.METADATA
    ) -> _T:
        replied = await self.channels.request(Send(1, message, self.node, channel, 20))
        assert isinstance(replied, Replied), replied
        assert isinstance(replied.message, answer)
        return replied.message


def _address(bootstrap: str) -> Node:
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    return Node(-1, host, int(port))


@pytest.fixture
async def client(kafka_broker: RunningBroker) -> AsyncIterator[Client]:
    servers = kafka_broker.bootstrap_servers
    channels = Channels(ConsumerConfig(bootstrap_servers=servers))
    yield Client(channels, _address(servers))
    await channels.close()


@pytest.fixture(params=[_PREFERRED, _OTHER, _OLDEST], ids=["preferred", "other", "oldest"])
def used_versions(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> dict[type[messages.Message], int]:
    """Makes the client use the preferred versions, or the others; what it used is noted here."""
    choose = codec.choose_version
    which: int = request.param
    used: dict[type[messages.Message], int] = {}

    def pick(
        message_type: type[messages.Request],
        broker_versions: dict[int, tuple[int, int]],
        *,
        by_id: bool,
    ) -> int:
        choose(message_type, broker_versions)
        version = codec.versions(message_type)[which]
        assert by_id or version != _BY_ID.get(message_type)
        lowest, highest = broker_versions[codec.api_key(message_type)]
        assert lowest <= version <= highest, f"{message_type} v{version} is not offered"
        used[message_type] = version
        return version

    monkeypatch.setattr(codec, "choose_version", pick)
    return used


async def _produce(
    servers: str, topic: str, count: int, compression: str | None = None, partition: int = 0
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression)
    await producer.start()
    try:
        for number in range(count):
            await producer.send(
                topic,
                b"value %d" % number,
                key=b"key %d" % number,
                partition=partition,
                timestamp_ms=1000 + number,
                headers=[("number", b"%d" % number)],
            )
    finally:
        await producer.stop()


def _fetch(
    partition: TopicPartition,
    offset: int,
    *,
    committed: bool,
    topic_ids: dict[str, bytes] | None = None,
    max_wait: float = 5.0,
) -> messages.FetchRequest:
    return messages.FetchRequest(
        partitions=(messages.FetchPartition(partition=partition, offset=offset, max_bytes=2**20),),
        max_wait=max_wait,
        min_bytes=1,
        max_bytes=2**20,
        read_committed=committed,
        topic_ids=topic_ids,
    )


async def _read_all(
    client: Client,
    partition: TopicPartition,
    committed: bool,
    enough: Callable[[list[Record], int], bool],
    topic_ids: dict[str, bytes] | None = None,
) -> tuple[list[Record], int]:
    """The records from offset 0 until it is ``enough``, and the position after them."""
    records: list[Record] = []
    position = 0
    while not enough(records, position):
        answer = await client.ask(
            _fetch(partition, position, committed=committed, topic_ids=topic_ids),
            messages.FetchResponse,
            Channel.FETCH,
        )
        (fetched,) = answer.partitions
        assert fetched.error is ErrorCode.none
        for batch in decode_batches(fetched, committed):
            records += batch.decode(partition.topic, partition.partition, 1, position)
            position = max(position, batch.next_offset)
    return records, position


async def test_every_request_is_answered_in_each_version(
    client: Client,
    kafka_topic: str,
    kafka_broker: RunningBroker,
    used_versions: dict[type[messages.Message], int],
) -> None:
    group = f"group-of-{kafka_topic}"
    tp = TopicPartition(kafka_topic, 0)
    await _produce(kafka_broker.bootstrap_servers, kafka_topic, 3)

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

    async def heartbeat(generation: int) -> ErrorCode:
        answer = await client.ask(
            messages.HeartbeatRequest(
                group_id=group, generation=generation, member_id=me, group_instance_id=None
            ),
            messages.HeartbeatResponse,
            Channel.HEARTBEAT,
        )
        return answer.error

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
        answer = await client.ask(
            messages.OffsetsForLeaderEpochRequest(
                queries=(messages.EpochQuery(partition=tp, epoch=epoch, leader_epoch=leader_epoch),)
            ),
            messages.OffsetsForLeaderEpochResponse,
        )
        return answer.ends[0]

    end = await end_of_epoch(0, 0)
    assert (end.error, end.epoch, end.offset) == (ErrorCode.none, 0, 3)
    later = await end_of_epoch(5, 0)
    assert (later.error, later.epoch, later.offset) == (ErrorCode.none, -1, -1)
    assert (await end_of_epoch(0, 9)).error is ErrorCode.unknown_leader_epoch

    records, _ = await _read_all(client, tp, False, lambda records, _: len(records) >= 3, topic_ids)
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

    async def answer(epoch: int, **told: Any) -> messages.ConsumerGroupHeartbeatResponse:
        return await client.ask(
            beat(epoch, **told), messages.ConsumerGroupHeartbeatResponse, Channel.HEARTBEAT
        )

    member = await answer(0, topics=(kafka_topic,), rebalance_timeout=10.0, owned=())
    while member.error is ErrorCode.coordinator_load_in_progress:
        member = await answer(0, topics=(kafka_topic,), rebalance_timeout=10.0, owned=())
    assert (member.error, member.member_id) == (ErrorCode.none, "me")
    assert member.heartbeat_interval > 0
    assert member.assignment is not None
    ((topic_id, numbers),) = member.assignment
    assert sorted(numbers) == [0, 1, 2, 3]
    if has_topic_id:
        assert topic_id == topics[kafka_topic].topic_id
    quiet = await answer(member.member_epoch)
    assert (quiet.error, quiet.assignment) == (ErrorCode.none, None)
    assert (await answer(member.member_epoch + 1)).error is ErrorCode.fenced_member_epoch
    assert (await answer(messages.LEAVE_EPOCH)).error is ErrorCode.none
    assert set(used_versions) == set(codec.REQUESTS)


async def test_commits_and_fetches_of_a_deleted_topic_do_not_apply_to_a_new_one_of_its_name(
    client: Client, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    tp = TopicPartition(kafka_topic, 0)

    async def topic_id() -> bytes:
        asked = messages.MetadataRequest(topics=(kafka_topic,))
        answer = await client.ask(asked, messages.MetadataResponse)
        return answer.topics[0].topic_id

    async def commit(topic_id: bytes) -> ErrorCode:
        answer = await client.ask(
            messages.OffsetCommitRequest(
                group_id=f"group-of-{kafka_topic}",
                generation=-1,
                member_id="",
                group_instance_id=None,
                entries=(messages.CommitEntry(partition=tp, offset=7),),
                topic_ids={kafka_topic: topic_id},
            ),
            messages.OffsetCommitResponse,
            Channel.COMMIT,
        )
        assert len(answer.errors) == 1
        return answer.errors[0][1]

    async def committed(topic_id: bytes) -> tuple[ErrorCode, int]:
        answer = await client.ask(
            messages.OffsetFetchRequest(
                group_id=f"group-of-{kafka_topic}",
                partitions=(tp,),
                topic_ids={kafka_topic: topic_id},
            ),
            messages.OffsetFetchResponse,
        )
        assert answer.error is ErrorCode.none
        return answer.offsets[0].error, answer.offsets[0].offset

    former = await topic_id()
    async with asyncio.timeout(20):
        while (error := await commit(former)) is not ErrorCode.none:
            assert error.retriable  # the coordinator of the first group is being made
            await asyncio.sleep(0.05)
    assert await committed(former) == (ErrorCode.none, 7)
    await asyncio.to_thread(kafka_broker.delete_topic, kafka_topic)
    await asyncio.to_thread(kafka_broker.create_topic, kafka_topic, 1)
    async with asyncio.timeout(20):
        while (new := await topic_id()) in (former, bytes(16)):  # noqa: ASYNC110 - of a broker
            await asyncio.sleep(0.05)
        # Its offsets are forgotten a moment later.
        while (await committed(new))[1] != -1:  # noqa: ASYNC110 - of a broker
            await asyncio.sleep(0.05)
    assert await commit(former) is ErrorCode.unknown_topic_id

    async def fetch(topic_id: bytes) -> ErrorCode:
        answer = await client.ask(
            _fetch(tp, 0, committed=False, topic_ids={kafka_topic: topic_id}, max_wait=0.1),
            messages.FetchResponse,
            Channel.FETCH,
        )
        return answer.partitions[0].error

    assert await fetch(former) is ErrorCode.unknown_topic_id
    async with asyncio.timeout(20):
        while (error := await fetch(new)) is not ErrorCode.none:
            assert error.retriable  # its leader is being made
            await asyncio.sleep(0.05)
    assert (await committed(former))[0] is ErrorCode.unknown_topic_id
    assert await committed(new) == (ErrorCode.none, -1)
    assert await commit(new) is ErrorCode.none
    assert await committed(new) == (ErrorCode.none, 7)


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_fetch_session_returns_changed_partitions_only(
    client: Client, kafka_topic: str, by_id: bool
) -> None:
    topic_ids: dict[str, bytes] | None = None
    if by_id:
        told = await client.ask(
            messages.MetadataRequest(topics=(kafka_topic,)), messages.MetadataResponse
        )
        topic_ids = {kafka_topic: told.topics[0].topic_id}
    everywhere = [TopicPartition(kafka_topic, number) for number in range(4)]
    wanted = {
        tp: messages.FetchPartition(partition=tp, offset=0, max_bytes=10_000) for tp in everywhere
    }
    session = FetchSession()

    async def fetch(*, breaks: int = 0) -> messages.FetchResponse:
        named = session.next_fetch(wanted, topic_ids)
        return await client.ask(
            messages.FetchRequest(
                partitions=named.partitions,
                max_wait=0.1,
                min_bytes=1,
                max_bytes=100_000,
                session_id=named.session_id,
                session_epoch=named.epoch + breaks,
                forgotten=named.forgotten,
                topic_ids=named.topic_ids,
            ),
            messages.FetchResponse,
            Channel.FETCH,
        )

    first = await fetch()
    assert first.error is ErrorCode.none
    assert {p.partition for p in first.partitions} == set(everywhere)
    session.answered(first.session_id)
    assert first.session_id > 0
    again = await fetch()
    assert (again.error, again.partitions) == (ErrorCode.none, ())
    session.answered(again.session_id)
    del wanted[everywhere[0]]
    wanted[everywhere[1]] = messages.FetchPartition(
        partition=everywhere[1], offset=5, max_bytes=10_000
    )
    changed = await fetch()
    assert [(p.partition, p.error) for p in changed.partitions] == [
        (everywhere[1], ErrorCode.offset_out_of_range)
    ]
    session.answered(changed.session_id)
    assert (await fetch(breaks=7)).error is ErrorCode.invalid_fetch_session_epoch
    session.forget()
    anew = await fetch()
    assert anew.error is ErrorCode.none
    assert len(anew.partitions) == 3


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_compression_are_read(
    client: Client, kafka_topic: str, kafka_broker: RunningBroker, compression: str | None
) -> None:
    await _produce(kafka_broker.bootstrap_servers, kafka_topic, 200, compression, partition=2)
    tp = TopicPartition(kafka_topic, 2)
    records, position = await _read_all(client, tp, False, lambda records, _: len(records) >= 200)
    assert position == 200
    assert [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in records] == [
        (n, b"key %d" % n, b"value %d" % n, 1000 + n, (("number", b"%d" % n),)) for n in range(200)
    ]


async def test_records_of_aborted_transactions_are_skipped(
    client: Client, kafka_topic: str, kafka_broker: RunningBroker
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka_broker.bootstrap_servers, transactional_id=f"tx-{kafka_topic}"
    )
    await producer.start()
    try:
        for name, aborted in (("a", False), ("b", True), ("c", False), ("d", True)):
            await producer.begin_transaction()
            for number in range(2):
                value = f"{name}{number}".encode()
                await producer.send_and_wait(kafka_topic, value, partition=1)
            await (producer.abort_transaction() if aborted else producer.commit_transaction())
    finally:
        await producer.stop()
    tp = TopicPartition(kafka_topic, 1)
    end = 12  # eight records and four markers

    def at_end(_: list[Record], position: int) -> bool:
        return position >= end

    everything, position = await _read_all(client, tp, False, at_end)
    assert position == end
    assert [r.value for r in everything] == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"d0", b"d1"]
    committed, position = await _read_all(client, tp, True, at_end)
    assert position == end
    assert [(r.offset, r.value) for r in committed] == [
        (0, b"a0"),
        (1, b"a1"),
        (6, b"c0"),
        (7, b"c1"),
    ]


async def test_a_long_poll_does_not_delay_other_channels(client: Client, kafka_topic: str) -> None:
    long_poll = asyncio.create_task(
        client.ask(
            _fetch(TopicPartition(kafka_topic, 0), 0, committed=False),
            messages.FetchResponse,
            Channel.FETCH,
        )
    )
    await client.ask(messages.MetadataRequest(topics=()), messages.MetadataResponse)
    assert not long_poll.done()
    long_poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long_poll


async def test_a_connection_is_shared_until_it_is_closed(client: Client) -> None:
    config = ConsumerConfig(bootstrap_servers=f"{client.node.host}:{client.node.port}")
    connection = await Connection.open(client.node, config, DecodeThreads(), within=10)
    answers = await asyncio.gather(
        *(connection.request(messages.MetadataRequest(topics=()), within=10) for _ in range(20))
    )
    assert len(answers) == 20
    await connection.close()
    assert not connection.connected


async def test_a_closed_port_is_unreachable(client: Client) -> None:
    nobody = Node(7, "127.0.0.1", 1)
    failed = await client.channels.request(
        Send(3, messages.MetadataRequest(topics=()), nobody, Channel.METADATA, 5)
    )
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.kind) == (3, FailureKind.UNREACHABLE)
    assert "broker 7 at 127.0.0.1:1" in failed.detail
