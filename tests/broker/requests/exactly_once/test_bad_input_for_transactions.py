"""What cannot work with processing="exactly_once", on a real Apache Kafka with an authorizer."""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from broker.handlers.test_handlers_on_a_real_broker import until
from broker.requests.read_committed import PARTITIONS, read_below_stable_offsets, read_committed
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from asyncrevoke import Consumer
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.errors import FatalError, IllegalStateError, ProducerFencedError, PublishError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

# Larger than the default max.message.bytes, also if it is compressed.
LARGE = random.Random(1).randbytes(2_000_000)
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "transaction.max.timeout.ms": "60000",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=PROPERTIES) as broker:
        yield broker


@contextmanager
def denied(
    broker: KafkaBroker, kind: ResourceType, name: str, operation: AclOperation
) -> Generator[None]:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    rule = (kind, name, ResourcePatternType.PREFIXED, "User:*", "*", operation)
    binding = AclBinding(*rule, AclPermissionType.DENY)
    for created in admin.create_acls([binding]).values():
        created.result(30)
    yield
    filters = [AclBindingFilter(*rule, AclPermissionType.DENY)]
    for deleted in admin.delete_acls(filters).values():
        deleted.result(30)


def options(broker: KafkaBroker, name: str, **changed: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": name,
        "processing": "exactly_once",
        "heartbeat_interval": 0.2,
        **changed,
    }


def topics(broker: KafkaBroker, name: str, *values: bytes) -> str:
    """Make an input topic with these values, an output topic, and a dead letter topic."""
    for topic in (name, f"{name}-out", f"{name}-dlq"):
        broker.create_topic(topic, partitions=PARTITIONS)
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(name, value, key=value[:9])
    assert producer.flush(30) == 0
    return name


def copying(broker: KafkaBroker, name: str, dead: str | None = None, **changed: Any) -> Consumer:
    consumer = Consumer(**options(broker, name, **changed))

    @consumer.handler(name, publish_to=f"{name}-out", dead_letter=dead)
    async def copy(value: bytes) -> bytes:
        return value

    return consumer


def unwritten(consumer: Consumer) -> set[tuple[str, int]]:
    """The topics that do not take failed records, and how many are held."""
    with suppress(IllegalStateError):
        return {(held.to_topic, held.records) for held in consumer.health().unwritten}
    return set()  # it is not entered yet


async def test_of_two_static_members_with_one_transactional_id_the_older_one_stops(
    broker: KafkaBroker,
) -> None:
    first, second = topics(broker, "first", b"1"), topics(broker, "second", b"1")
    same: dict[str, Any] = {"group_instance_id": "one", "transactional_id_prefix": "same"}
    older = asyncio.create_task(copying(broker, first, **same).run())
    await until(lambda: read_below_stable_offsets(broker, f"{first}-out"))
    newer = copying(broker, second, **same)
    running = asyncio.create_task(newer.run())
    await until(lambda: read_below_stable_offsets(broker, f"{second}-out"))
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(first, b"2")
    producer.flush(30)
    with pytest.raises(ProducerFencedError, match="an id of its own"):
        await older
    assert not running.done()
    newer.stop()
    await running


async def test_a_timeout_above_that_of_the_brokers_ends_the_consumer(broker: KafkaBroker) -> None:
    name = topics(broker, "timeout", b"1")
    with pytest.raises(FatalError, match=r"transaction\.max\.timeout\.ms"):
        await copying(broker, name, transaction_timeout=61.0).run()


@pytest.mark.parametrize("operation", [AclOperation.WRITE, AclOperation.DESCRIBE])
async def test_a_transactional_id_that_may_not_be_used_ends_the_consumer(
    broker: KafkaBroker, operation: AclOperation
) -> None:
    name = topics(broker, f"id-{operation.name.lower()}", b"1")
    with (
        denied(broker, ResourceType.TRANSACTIONAL_ID, name, operation),
        pytest.raises(FatalError, match=f"{name}-.*grant DESCRIBE and WRITE"),
    ):
        await copying(broker, name).run()
    assert not read_committed(broker, f"{name}-out")


async def test_a_result_that_is_too_large_becomes_a_dead_letter_and_others_are_written(
    broker: KafkaBroker,
) -> None:
    name = topics(broker, "large", b"1", b"2")
    consumer = Consumer(**options(broker, name))

    @consumer.handler(name, publish_to=f"{name}-out", dead_letter=f"{name}-dlq")
    async def enlarge(value: bytes) -> bytes:
        return LARGE if value == b"1" else value

    running = asyncio.create_task(consumer.run())
    await until(lambda: read_below_stable_offsets(broker, f"{name}-dlq"))
    await until(lambda: read_below_stable_offsets(broker, f"{name}-out"))
    consumer.stop()
    await running
    assert read_committed(broker, f"{name}-dlq") == {b"1": 1}
    assert read_committed(broker, f"{name}-out") == {b"2": 1}


async def test_a_result_for_a_missing_topic_is_a_failure_of_the_handler(
    broker: KafkaBroker,
) -> None:
    name = topics(broker, "missing", b"1")
    consumer = Consumer(**options(broker, name, request_timeout=3.0, allow_missing_topics=True))

    @consumer.handler(name, publish_to=f"{name}-nowhere")
    async def copy(value: bytes) -> bytes:
        return value

    with pytest.raises(PublishError, match=f"{name}-nowhere"):
        await consumer.run()


async def test_a_dead_letter_without_write_permission_is_held_until_it_is_granted(
    broker: KafkaBroker,
) -> None:
    name = topics(broker, "denied", b"1", b"2", b"3")
    consumer = Consumer(**options(broker, name))

    @consumer.handler(name, publish_to=f"{name}-out", dead_letter=f"{name}-dlq")
    async def copy(value: bytes) -> bytes:
        if value == b"3":
            raise ValueError("no invoice")
        return value

    with denied(broker, ResourceType.TOPIC, f"{name}-", AclOperation.WRITE):
        running = asyncio.create_task(consumer.run())
        await until(lambda: unwritten(consumer) == {(f"{name}-dlq", 3)})
        assert not running.done()
    await until(lambda: read_below_stable_offsets(broker, f"{name}-dlq").total() == 3)
    consumer.stop()
    await running
    assert read_committed(broker, f"{name}-dlq") == {b"1": 1, b"2": 1, b"3": 1}
    assert not read_committed(broker, f"{name}-out")
