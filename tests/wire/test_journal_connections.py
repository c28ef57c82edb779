"""Connections to the topic of a journal, and to an audited topic, while brokers do not respond."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from wire.fake_broker import FakeBroker

from asyncrevoke import ConfigError, ConsumerConfig, JournalError, RequestTimeoutError
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.topic.topic import Topic, is_compacted
from asyncrevoke.journal import KafkaSink
from asyncrevoke.journal.topic import kafka_sink

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.timeout(30)


async def never(_correlation: int, _writer: asyncio.StreamWriter) -> None:
    """No response."""


async def test_disconnecting_during_an_outage_ends_within_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_sink, "_TIMEOUT", 0.3)
    broker = FakeBroker(never)
    node = await broker.start()
    sink = KafkaSink("billing-journal", bootstrap_servers=f"127.0.0.1:{node.port}")
    loop = asyncio.get_running_loop()
    try:
        with pytest.raises(JournalError, match=r"journal in topic 'billing-journal' within 0\.3 s"):
            await sink.send("session", [b"rows"])
        begun = loop.time()
        await sink.aclose()
        assert loop.time() - begun < 2.5
        await broker.until(lambda: broker.open == 0)
        await sink.aclose()
    finally:
        await broker.stop()


async def test_the_error_says_why_the_topic_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "_KNOWN_WITHIN", 0.3)
    sink = KafkaSink("billing-journal", bootstrap_servers="127.0.0.1:1")
    try:
        with pytest.raises(
            JournalError, match=r"to topic 'billing-journal'.*no connection to 127\.0\.0\.1:1"
        ):
            await sink.send("session", [b"rows"])
    finally:
        await sink.aclose()


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"request_timeout_ms": 20_000}, r"request_timeout=20\.0"),
        ({"compression_type": "lz4"}, r"compression=\.\.\."),
        ({"retry_backoff_ms": 100}, "leave it out"),
        ({"bootstrap_server": "kafka"}, "bootstrap_servers"),
    ],
)
def test_an_option_of_another_client_is_rejected_with_the_right_one(
    options: dict[str, Any], right: str
) -> None:
    with pytest.raises(ConfigError, match=right):
        KafkaSink("billing-journal", **options)


async def test_an_audit_names_a_broker_that_cannot_be_reached_at_once() -> None:
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(TopicError, match=r"orders cannot be read: .*127\.0\.0\.1:1"):
        await Topic.of("orders", config, isolation_level="read_committed")
    with pytest.raises(RequestTimeoutError, match=r"configuration of orders: .*127\.0\.0\.1:1"):
        await is_compacted("orders", config)
