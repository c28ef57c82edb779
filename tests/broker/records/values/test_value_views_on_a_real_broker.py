"""Values as memoryviews of what was received from a real broker."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, cast

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker

SIZES = (0, 100, 10_000, 100_000, 1_000_000, 5_000_000)


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_records_of_all_sizes_are_read_as_views(
    kafka_broker: RunningBroker, compression: str | None
) -> None:
    topic = f"views-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, 1, config={"max.message.bytes": str(2**23)})
    address = kafka_broker.bootstrap_servers
    values = [random.Random(size).randbytes(size) for size in SIZES]
    producer = AIOKafkaProducer(
        bootstrap_servers=address, compression_type=compression, max_request_size=2**23
    )
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()
    read: list[bytes] = []
    large: list[object] = []
    async with (
        asyncio.timeout(60),
        Consumer(
            topic, bootstrap_servers=address, group_id=topic, value_as="view", max_poll_records=1
        ) as consumer,
    ):
        while len(read) < len(values):
            for record in (await anext(consumer)).records:
                view = record.view
                assert view is not None
                assert isinstance(cast("object", record.value), memoryview)
                read.append(bytes(view))
                if isinstance(view.obj, ReceiveBuffer):
                    large.append(len(view))
    assert read == values
    assert large == ([] if compression else [100_000, 1_000_000, 5_000_000])
