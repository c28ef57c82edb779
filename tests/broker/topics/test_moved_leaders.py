"""Leaders of partitions move in a cluster whose brokers all run, while a group reads."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

import msgspec
import pytest
from broker.groups.recorded_requests import HeldResponses, change_responses, note_requests
from broker.records.numbered_records import NumberedMember, Numbers, until
from broker.topics.partition_replicas import move_leader

from asyncrevoke.client.core.io.effects import Replied
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from asyncrevoke.broker import KafkaCluster
    from asyncrevoke.client.core.io.effects import Failed, Send
    from asyncrevoke.client.protocol.messages import Response

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

PARTITIONS = 3
MOVED = {ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch}


class NotedFetches:
    """Which broker has returned records of which partition, and which leaders brokers named."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.returned: set[tuple[int, int]] = set()
        self.named: set[tuple[int, int]] = set()
        note_requests(monkeypatch, self._note)

    def _note(self, send: Send, reply: Replied | Failed) -> None:
        if not isinstance(reply, Replied) or not isinstance(reply.message, FetchResponse):
            return
        for fetched in reply.message.partitions:
            partition = fetched.partition.partition
            if fetched.records:
                self.returned.add((send.node.node_id, partition))
            if fetched.error in MOVED and fetched.leader_id >= 0:
                self.named.add((fetched.leader_id, partition))

    async def wait_for_records(self, node_id: int, partition: int) -> None:
        await until(lambda: (node_id, partition) in self.returned, "records of the new leader")


@pytest.fixture
def numbers(kafka_cluster: KafkaCluster) -> Numbers:
    topic = f"moved-{uuid.uuid4().hex[:8]}"
    kafka_cluster.create_topic(topic, PARTITIONS)
    address = kafka_cluster.bootstrap_servers
    return Numbers(address, address, topic, PARTITIONS)


async def test_a_moved_leader_is_fetched_from_before_any_metadata_response_arrives(
    kafka_cluster: KafkaCluster, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = NotedFetches(monkeypatch)
    metadata = HeldResponses(monkeypatch, MetadataResponse)
    async with NumberedMember(numbers.consumer()) as member:
        async with numbers.trickling():
            await member.has(100)
            metadata.hold()
            try:
                for partition in [*range(PARTITIONS), *range(PARTITIONS)]:
                    leader = await asyncio.to_thread(
                        move_leader, kafka_cluster, numbers.topic, partition
                    )
                    await fetches.wait_for_records(leader, partition)
                    assert (leader, partition) in fetches.named
                # The member has asked for metadata too, and knew the leaders without it.
                assert metadata.count == 1
            finally:
                metadata.release()
        await member.has_all(numbers)
    assert not member.errors
    assert not member.lost


async def test_a_required_rebootstrap_while_a_leader_moves_repeats_and_loses_no_record(
    kafka_cluster: KafkaCluster,
    numbers: Numbers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[int] = []
    required = asyncio.Event()

    def note(send: Send, reply: Replied | Failed) -> None:
        if isinstance(send.message, MetadataRequest) and isinstance(reply, Replied):
            asked.append(send.node.node_id)

    def require(message: Response) -> Response:
        # Apache Kafka's brokers have the error for proxies that move clients between clusters.
        if isinstance(message, MetadataResponse) and required.is_set():
            required.clear()
            return msgspec.structs.replace(message, error=ErrorCode.rebootstrap_required)
        return message

    change_responses(monkeypatch, require)
    note_requests(monkeypatch, note)
    async with NumberedMember(numbers.consumer()) as member:
        async with numbers.trickling():
            await member.has(100)
            asked.clear()
            required.set()
            with caplog.at_level(logging.WARNING, "asyncrevoke"):
                await asyncio.to_thread(move_leader, kafka_cluster, numbers.topic, 0)
                await until(lambda: len(asked) >= 2, "metadata of a bootstrap address")
            sent = numbers.sent
            await member.has(sent + 100)
        await member.has_all(numbers)
    assert asked[0] >= 0 > asked[1]
    assert caplog.text.count("connecting to the bootstrap addresses again") == 1
    assert not member.errors
    assert not member.lost
