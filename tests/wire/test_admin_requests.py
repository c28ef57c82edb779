"""Requests of a broker's administration have the limits of a consumer's connections."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest
from kio.schema.create_partitions.v1 import response as partitions1
from kio.schema.create_topics.v5 import response as topics5
from kio.schema.delete_topics.v4 import response as topics4
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v8 import response as metadata8
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32
from wire.fake_broker import API_VERSIONS, framed
from wire.frames.response_frames import NO_THROTTLE, body
from wire.test_unauthenticated_brokers import HostileBroker

from asyncrevoke.broker.admin import Admin
from asyncrevoke.broker.errors import BrokerRequestError
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    EntityResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from asyncrevoke.client.config import ConsumerConfig

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
# What Apache Kafka 2.4 offers.
KAFKA_2_4 = {
    METADATA: (0, 9),
    CREATE_TOPICS: (0, 5),
    DELETE_TOPICS: (0, 4),
    CREATE_PARTITIONS: (0, 1),
}


@pytest.mark.timeout(30)
async def test_a_frame_beyond_the_limit_is_an_error_before_it_is_read() -> None:
    broker = HostileBroker()
    broker.on[API_VERSIONS] = lambda _correlation, _data: struct.pack(">i", 2**31 - 1)
    node = await broker.start()
    try:
        with pytest.raises(ConnectionError, match="exceeds the limit"):
            await asyncio.to_thread(Admin(f"{node.host}:{node.port}", timeout=20).brokers)
    finally:
        await broker.stop()


class ZooKeeperCluster:
    """Two brokers of Apache Kafka 2.4, of which only the controller creates and deletes topics."""

    def __init__(self) -> None:
        self.brokers = (HostileBroker(), HostileBroker())
        self.addresses: list[str] = []
        # The controller, and the one that the brokers' metadata name.
        self.controller = self.named = 1
        # What happens when a broker that is not the controller is asked.
        self.after_refusal: Callable[[], None] = lambda: None

    async def start(self) -> None:
        for number, broker in enumerate(self.brokers):
            node = await broker.start()
            self.addresses.append(f"{node.host}:{node.port}")
            broker.versions = dict(KAFKA_2_4)
            broker.on[METADATA] = lambda correlation, _: self._response(correlation, self._named())
            for key, made in ((CREATE_TOPICS, self._created), (DELETE_TOPICS, self._deleted)):
                broker.on[key] = self._by_controller(number, made, flexible=True)
            broker.on[CREATE_PARTITIONS] = self._by_controller(number, self._added, flexible=False)

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()

    def asked(self, key: int) -> list[int]:
        return [broker.asked.count(key) for broker in self.brokers]

    def _by_controller(
        self, number: int, made: Callable[[ErrorCode], Any], *, flexible: bool
    ) -> Callable[[int, bytes], bytes]:
        def respond(correlation: int, _: bytes) -> bytes:
            if number == self.controller:
                return self._response(correlation, made(ErrorCode.none), flexible=flexible)
            self.after_refusal()
            refused = made(ErrorCode.not_controller)
            return self._response(correlation, refused, flexible=flexible)

        return respond

    def _response(self, correlation: int, entity: object, *, flexible: bool = False) -> bytes:
        return framed(struct.pack(">i", correlation) + b"\0" * flexible + body(entity))

    def _named(self) -> object:
        return metadata8.MetadataResponse(
            throttle_time=NO_THROTTLE,  # type: ignore[arg-type]
            brokers=tuple(
                metadata8.MetadataResponseBroker(
                    node_id=BrokerId(number), host=host, port=i32(int(port)), rack=None
                )
                for number, address in enumerate(self.addresses)
                for host, port in [address.split(":")]
            ),
            cluster_id=None,
            controller_id=BrokerId(self.named),
            topics=(),
        )

    @staticmethod
    def _created(error: ErrorCode) -> object:
        topic = topics5.CreatableTopicResult(
            name=TopicName("t"),
            error_code=error,
            error_message=None,
            num_partitions=i32(3),
            configs=(),
        )
        return topics5.CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(topic,))  # type: ignore[arg-type]

    @staticmethod
    def _deleted(error: ErrorCode) -> object:
        topic = topics4.DeletableTopicResult(name=TopicName("t"), error_code=error)
        return topics4.DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=(topic,))  # type: ignore[arg-type]

    @staticmethod
    def _added(error: ErrorCode) -> object:
        topic = partitions1.CreatePartitionsTopicResult(
            name=TopicName("t"), error_code=error, error_message=None
        )
        return partitions1.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=(topic,))  # type: ignore[arg-type]


async def test_topics_of_kafka_2_4_with_zookeeper_are_created_by_the_controller() -> None:
    cluster = ZooKeeperCluster()
    await cluster.start()
    try:
        admin = Admin(cluster.addresses[0], timeout=20)
        assert await asyncio.to_thread(admin.create_topic, "t", -1, -1, {}) == 3
        await asyncio.to_thread(admin.add_partitions, "t", 6)
        await asyncio.to_thread(admin.delete_topic, "t")
    finally:
        await cluster.stop()
    for key in (CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS):
        assert cluster.asked(key) == [1, 1]


async def test_a_new_controller_is_found_when_the_metadata_name_it() -> None:
    cluster = ZooKeeperCluster()
    await cluster.start()
    refusals = 0

    def refused() -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 3:  # the third broker that is asked was the controller before
            cluster.named = 0

    cluster.controller, cluster.named = 0, 1
    cluster.after_refusal = refused
    try:
        admin = Admin(cluster.addresses[1], timeout=20)
        assert await asyncio.to_thread(admin.create_topic, "t", 3, 1, {}) == 3
    finally:
        await cluster.stop()
    assert cluster.asked(CREATE_TOPICS) == [1, 3]


def test_without_a_controller_the_error_says_so_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def respond(request: object, _config: ConsumerConfig, _timeout: float) -> object:
        if isinstance(request, MetadataRequest):
            return MetadataResponse(brokers=(), topics=())
        return EntityResponse(entity=ZooKeeperCluster._created(ErrorCode.not_controller))

    monkeypatch.setattr("asyncrevoke.broker.admin.request_blocking", respond)
    with pytest.raises(BrokerRequestError, match="not_controller"):
        Admin("kafka-1:9092", timeout=0.3).create_topic("t", 3, 1, {})


def test_a_controller_at_an_ipv6_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def respond(request: object, config: ConsumerConfig, _: float) -> object:
        if isinstance(request, MetadataRequest):
            brokers = (BrokerMetadata(node_id=1, host="2001:db8::1", port=9092),)
            return MetadataResponse(brokers=brokers, topics=(), controller_id=1)
        asked.append(config.bootstrap_servers)
        error = ErrorCode.none if len(asked) == 2 else ErrorCode.not_controller
        return EntityResponse(entity=ZooKeeperCluster._created(error))

    monkeypatch.setattr("asyncrevoke.broker.admin.request_blocking", respond)
    assert Admin("kafka-2:9092", timeout=20).create_topic("t", 3, 1, {}) == 3
    assert asked == [("kafka-2:9092",), ("[2001:db8::1]:9092",)]
