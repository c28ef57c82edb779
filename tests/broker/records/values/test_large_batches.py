"""A batch of tens of megabytes on a real broker, small when it is compressed."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer
from asyncrevoke.client.core.io.effects import BatchDecoded, DecodeBatch

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker

RECORDS = 20_000
VALUE = b"0123456789abcdef" * 64


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_large_batch_blocks_neither_the_event_loop_nor_other_partitions(
    kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    topic = f"large-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, 2, config={"max.message.bytes": str(2**25)})
    address = kafka_broker.bootstrap_servers
    began, go_on = asyncio.Event(), threading.Event()
    loop, run = asyncio.get_running_loop(), DecodeBatch.run

    def held_up(self: DecodeBatch) -> BatchDecoded:
        assert threading.current_thread() is not threading.main_thread()
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(60)
        return run(self)

    monkeypatch.setattr(DecodeBatch, "run", held_up)
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        compression_type=compression,
        max_batch_size=2**25,
        max_request_size=2**25,
    )
    await producer.start()
    try:
        large = producer.create_batch()
        for _ in range(RECORDS):
            assert large.append(key=None, value=VALUE, timestamp=None) is not None
        await (await producer.send_batch(large, topic, partition=0))
        async with (
            asyncio.timeout(90),
            Consumer(topic, bootstrap_servers=address, group_id=topic) as consumer,
        ):
            await began.wait()
            # It is being decoded for as long as we want; what is sent now does not wait for it.
            await (await producer.send(topic, b"small", partition=1))
            assert [record.value for record in (await anext(consumer)).records] == [b"small"]
            go_on.set()
            offsets: list[int] = []
            while len(offsets) < RECORDS:
                batch = await anext(consumer)
                assert all(record.value == VALUE for record in batch.records)
                offsets += [record.offset for record in batch.records]
    finally:
        go_on.set()
        await producer.stop()
    assert offsets == [*range(RECORDS)]
