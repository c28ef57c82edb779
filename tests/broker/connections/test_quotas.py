"""A client that exceeds a quota of the broker waits, and stays connected and a member."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, ClassVar

import pytest
from kio.schema.alter_client_quotas.v1 import request as quotas
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.static.primitive import f64

from asyncrevoke import Consumer, Producer
from asyncrevoke.broker.admin import Admin
from asyncrevoke.client.protocol.messages import Entities, EntityRequest

if TYPE_CHECKING:
    from asyncrevoke.broker.running import RunningBroker
    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

# Bytes per second: a broker returns those of ten seconds at once, and then throttles.
QUOTA = 20_000.0
RECORDS, SIZE = 50, 10_000
# A broker without a response for a third of it was taken for dead.
SESSION = 6.0
OBSERVED = 8.0


class AlterClientQuotas(EntityRequest[AlterClientQuotasResponse], frozen=True, kw_only=True):
    entities: ClassVar[Entities] = (quotas.AlterClientQuotasRequest, AlterClientQuotasResponse)
    entries: tuple[quotas.EntryData, ...]
    validate_only: bool = False


def limit_fetches(broker: RunningBroker, client_id: str) -> None:
    """Give the client a quota of QUOTA bytes per second that it fetches."""
    client = quotas.EntityData(entity_type="client-id", entity_name=client_id)
    rate = quotas.OpData(key="consumer_byte_rate", value=f64(QUOTA), remove=False)
    request = AlterClientQuotas(entries=(quotas.EntryData(entity=(client,), ops=(rate,)),))
    (entry,) = Admin(broker.bootstrap_servers)._response_to(request).entries
    assert not entry.error_code.value


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_throttled_consumer_keeps_its_connections_and_is_ready(
    kafka_broker: RunningBroker,
    kafka_topic: str,
    protocol: GroupProtocol,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client_id = f"throttled-{uuid.uuid4().hex[:8]}"
    limit_fetches(kafka_broker, client_id)
    async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
        for _ in range(RECORDS):
            await producer.publish(kafka_topic, os.urandom(SIZE), partition=0)
    caplog.set_level("INFO", "asyncrevoke")
    consumer = Consumer(
        kafka_topic,
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id=client_id,
        client_id=client_id,
        group_protocol=protocol,
        session_timeout=SESSION if protocol == "classic" else 45.0,
        request_timeout=6.0,
    )
    loop = asyncio.get_running_loop()
    received = 0
    async with consumer, asyncio.timeout(90):
        while not consumer.health().throttled_brokers:
            received += len((await consumer.poll(timeout=0.2)).records)
        longest, began = 0.0, loop.time()
        while loop.time() - began < OBSERVED:
            received += len((await consumer.poll(timeout=0.2)).records)
            assert consumer.probe().ready, consumer.probe().reasons
            longest = max(longest, *consumer.health().throttled_brokers.values(), 0.0)
        assert 0 < received < RECORDS
        assert longest > SESSION / 3
    lines = [line.getMessage() for line in caplog.records]
    assert any(line.startswith("throttled by a quota") for line in lines)
    assert not [line for line in lines if "does not respond" in line or "membership lost" in line]
