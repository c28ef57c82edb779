"""A producer of one's own: its options, and calls outside of its block."""

from __future__ import annotations

from typing import Any

import pytest

from asyncrevoke import Producer
from asyncrevoke.client.config.consumer_options import ProducerOptions
from asyncrevoke.client.producing.message import PublishedRecord
from asyncrevoke.client.producing.transactions.producer_transaction import (
    MOST_BYTES,
    ProducerTransaction,
)
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.errors import ConfigError, ConsumerClosedError, IllegalStateError, PublishError


def test_its_options_are_options_of_a_consumer() -> None:
    assert set(ProducerOptions.__annotations__) <= set(ConsumerConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_id": "g"}, "Producer has no option group_id"),
        ({"acks": "all"}, "no option acks: records are acknowledged by all in-sync replicas"),
        ({"linger.ms": 5}, "no option linger.ms: records are sent at once"),
        ({"compression_type": "lz4"}, "no option compression_type: use compression="),
        ({"enable.idempotence": True}, "no option enable.idempotence: use idempotent="),
        ({"request_timeout_ms": 500}, "times are in seconds: use request_timeout=0.5"),
        ({"transaction_timeout_ms": 500}, "times are in seconds: use transaction_timeout=0.5"),
        ({"session_timeout_ms": 500}, "Producer has no option session_timeout_ms"),
        ({"publish_to": "t"}, "Producer has no option publish_to"),
        ({"value_serializer": str}, "bytes are written unchanged"),
        ({"transactional_id": ""}, "not empty"),
        ({"transactional_id": b"id"}, "must be text"),
        ({"transactional_id": "id", "idempotent": False}, "needs idempotent=True"),
        ({"transactional_id": "id", "transaction_timeout": 0}, "transaction_timeout must be"),
        ({"transactional_id": "id", "transaction_timeout": True}, "transaction_timeout must be"),
        ({"transactional_id": "id", "transaction_timeout": float("nan")}, "transaction_timeout"),
        ({"transactional_id": "id", "transaction_timeout": 1e9}, "transaction_timeout"),
        ({"compression": "best"}, "compression"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Producer(**options)


async def test_calls_outside_of_the_block_raise() -> None:
    producer = Producer()
    with pytest.raises(IllegalStateError, match="async with Producer"):
        await producer.publish("t", b"v")
    async with producer:
        with pytest.raises(ConfigError, match="transactional_id"):
            producer.transaction()
        with pytest.raises(IllegalStateError, match="entered once"):
            await producer.__aenter__()
    with pytest.raises(ConsumerClosedError, match="closed"):
        await producer.publish("t", b"v")


async def test_a_transaction_keeps_records_until_its_block_ends() -> None:
    committed: list[list[PublishedRecord]] = []

    async def commit(records: Any) -> None:
        committed.append(list(records))

    async with ProducerTransaction(commit) as transaction:
        transaction.publish("t", "a", key="k", headers={"h": "x"}, partition=1, timestamp=5)
        transaction.publish("t", {"b": 1})
        assert committed == []
    expected = PublishedRecord("t", 1, b"k", b"a", [("h", b"x")], 5)
    assert committed == [[expected, PublishedRecord("t", None, None, b'{"b":1}', [], None)]]
    with pytest.raises(IllegalStateError, match="ended"):
        transaction.publish("t", "late")
    with pytest.raises(IllegalStateError, match="once"):
        await transaction.__aenter__()


async def test_a_transaction_without_records_or_with_an_exception_is_not_committed() -> None:
    async def commit(_: object) -> None:
        pytest.fail("committed")

    async with ProducerTransaction(commit):
        pass
    with pytest.raises(ZeroDivisionError):
        async with ProducerTransaction(commit) as transaction:
            transaction.publish("t", "a")
            raise ZeroDivisionError


async def test_a_transaction_has_a_limit_of_bytes() -> None:
    async def commit(_: object) -> None: ...

    async with ProducerTransaction(commit) as transaction:
        transaction.publish("t", bytes(MOST_BYTES - 10))
        with pytest.raises(PublishError, match="at most"):
            transaction.publish("t", bytes(11))
        transaction.publish("t", bytes(10))
