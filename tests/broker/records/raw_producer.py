"""Sends record batches as they are, which no producer would build."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer


class _RawBuilder:
    """Stands for the builder of a batch of aiokafka's producer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def build(self) -> bytearray:
        return bytearray(self._data)


async def send_raw(address: str, topic: str, *batches: bytes) -> None:
    """Append these batches to partition 0, one after another."""
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for data in batches:
            batch = producer.create_batch()
            assert batch.append(key=None, value=b"", timestamp=None) is not None
            batch.close()
            vars(batch)["_builder"] = _RawBuilder(data)
            await (await producer.send_batch(batch, topic, partition=0))
