"""Fetch requests to a real Apache Kafka: sessions, compression, transactions, deleted topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from broker.kafka_release import kafka_release
from broker.requests.fetched_records import fetch_request, produce, read_all

from asyncrevoke.client.core.fetch.broker_fetches import FetchSession
from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from broker.requests.wire_client import WireClient

    from asyncrevoke.broker import RunningBroker


pytestmark = pytest.mark.broker


@pytest.mark.skipif(
    kafka_release() < (4, 2), reason="needs Apache Kafka 4.2, which commits by topic id"
)
async def test_commits_and_fetches_of_a_deleted_topic_do_not_apply_to_a_new_one_of_its_name(
    client: WireClient, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    tp = TopicPartition(kafka_topic, 0)

    async def topic_id() -> bytes:
        asked = messages.MetadataRequest(topics=(kafka_topic,))
        response = await client.ask(asked, messages.MetadataResponse)
        return response.topics[0].topic_id

    async def commit(topic_id: bytes) -> ErrorCode:
        response = await client.ask(
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
        assert len(response.errors) == 1
        return response.errors[0][1]

    async def committed(topic_id: bytes) -> tuple[ErrorCode, int]:
        response = await client.ask(
            messages.OffsetFetchRequest(
                group_id=f"group-of-{kafka_topic}",
                partitions=(tp,),
                topic_ids={kafka_topic: topic_id},
            ),
            messages.OffsetFetchResponse,
        )
        assert response.error is ErrorCode.none
        return response.offsets[0].error, response.offsets[0].offset

    former = await topic_id()
    # The first lookup of a coordinator makes the topic of committed offsets.
    group = messages.FindCoordinatorRequest(group_id=f"group-of-{kafka_topic}")
    await client.ask(group, messages.FindCoordinatorResponse)
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
        response = await client.ask(
            fetch_request(tp, 0, committed=False, topic_ids={kafka_topic: topic_id}, max_wait=0.1),
            messages.FetchResponse,
            Channel.FETCH,
        )
        return response.partitions[0].error

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
    client: WireClient, kafka_topic: str, by_id: bool
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
    session.response_received(first.session_id)
    assert first.session_id > 0
    again = await fetch()
    assert (again.error, again.partitions) == (ErrorCode.none, ())
    session.response_received(again.session_id)
    del wanted[everywhere[0]]
    wanted[everywhere[1]] = messages.FetchPartition(
        partition=everywhere[1], offset=5, max_bytes=10_000
    )
    changed = await fetch()
    assert [(p.partition, p.error) for p in changed.partitions] == [
        (everywhere[1], ErrorCode.offset_out_of_range)
    ]
    session.response_received(changed.session_id)
    assert (await fetch(breaks=7)).error is ErrorCode.invalid_fetch_session_epoch
    session.forget()
    anew = await fetch()
    assert anew.error is ErrorCode.none
    assert len(anew.partitions) == 3


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_compression_are_read(
    client: WireClient, kafka_topic: str, kafka_broker: RunningBroker, compression: str | None
) -> None:
    await produce(kafka_broker.bootstrap_servers, kafka_topic, 200, compression, partition=2)
    tp = TopicPartition(kafka_topic, 2)
    records, position = await read_all(client, tp, False, lambda records, _: len(records) >= 200)
    assert position == 200
    assert [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in records] == [
        (n, b"key %d" % n, b"value %d" % n, 1000 + n, (("number", b"%d" % n),)) for n in range(200)
    ]


async def test_records_of_aborted_transactions_are_skipped(
    client: WireClient, kafka_topic: str, kafka_broker: RunningBroker
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

    everything, position = await read_all(client, tp, False, at_end)
    assert position == end
    assert [r.value for r in everything] == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"d0", b"d1"]
    committed, position = await read_all(client, tp, True, at_end)
    assert position == end
    assert [(r.offset, r.value) for r in committed] == [
        (0, b"a0"),
        (1, b"a1"),
        (6, b"c0"),
        (7, b"c1"),
    ]


async def test_a_long_poll_does_not_delay_other_channels(
    client: WireClient, kafka_topic: str
) -> None:
    long_poll = asyncio.create_task(
        client.ask(
            fetch_request(TopicPartition(kafka_topic, 0), 0, committed=False),
            messages.FetchResponse,
            Channel.FETCH,
        )
    )
    await client.ask(messages.MetadataRequest(topics=()), messages.MetadataResponse)
    assert not long_poll.done()
    long_poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long_poll
