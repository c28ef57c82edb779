"""aiokafka's clients are made in one place, with the limits of a consumer's own connections."""

from __future__ import annotations

import ast
import asyncio
import logging
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest
from wire.fake_broker import FakeBroker
from wire.test_unauthenticated_brokers import (
    SASL,
    SASL_AUTHENTICATE,
    HostileBroker,
    authenticated,
    scram_challenge,
)

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.config.security import client_options
from asyncrevoke.runtime.net.frames import frame_limit
from asyncrevoke.runtime.net.kafka_clients import kafka_admin, kafka_consumer, kafka_producer
from asyncrevoke.runtime.net.limited_connection import open_limited

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(__file__).parents[2] / "asyncrevoke"
CLASSES = {"AIOKafkaProducer", "AIOKafkaConsumer", "AIOKafkaAdminClient", "AIOKafkaClient"}
# The demonstration connects to a broker without security, as an application of aiokafka does.
METADATA = 3
ANNOUNCED = 1_900_000_000
ELSEWHERE = {"cli/demo/member/aiokafka_member.py", "cli/demo/producer.py", "cli/demo/run.py"}


def test_no_other_module_makes_a_client_of_aiokafka() -> None:
    naming = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and CLASSES & {name.name for name in node.names})
        or (isinstance(node, ast.Attribute) and node.attr in CLASSES)
    }
    assert naming == {"runtime/net/kafka_clients.py"} | ELSEWHERE


async def opened(make: Callable[..., Any], options: dict[str, Any]) -> None:
    client = make(**options)
    try:
        await client.start()
    finally:
        await (client.stop() if hasattr(client, "stop") else client.close())


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [kafka_producer, kafka_consumer, kafka_admin])
@pytest.mark.parametrize("most", [None, 5000])
async def test_a_client_rejects_a_scram_challenge_beyond_the_option(
    make: Callable[..., Any], most: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    threads = set(threading.enumerate())
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(2**31 - 1)
    node = await broker.start()
    more = {} if most is None else {"sasl_scram_max_iterations": most}
    servers = f"127.0.0.1:{node.port}"
    config = ConsumerConfig.from_options(bootstrap_servers=servers, **SASL, **more)
    try:
        with pytest.raises(KafkaConnectionError):
            await opened(make, client_options(config))
    finally:
        await broker.stop()
    assert f"more than sasl_scram_max_iterations={most or 100000}" in caplog.text
    assert set(threading.enumerate()) <= threads


@pytest.mark.timeout(30)
async def test_opening_takes_a_client_no_longer_than_its_request_timeout() -> None:
    broker = HostileBroker()
    broker.on[SASL_AUTHENTICATE] = scram_challenge(2**31 - 1)
    node = await broker.start()
    options: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{node.port}",
        "sasl_scram_max_iterations": 2**31 - 1,
        "request_timeout_ms": 200,
        **SASL,
    }
    try:
        async with asyncio.timeout(20):
            with pytest.raises(KafkaConnectionError):
                await opened(kafka_producer, options)
        await broker.until(lambda: broker.open == 0)
    finally:
        await broker.stop()


@pytest.mark.parametrize("make", [kafka_producer, kafka_consumer, kafka_admin])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_no_client_logs_the_password_at_debug(
    make: Callable[..., Any], mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    for log in list(logging.root.manager.loggerDict):
        if log.startswith("aiokafka"):
            logging.getLogger(log).filters.clear()
    caplog.set_level(logging.DEBUG)
    broker = HostileBroker()
    broker.mechanism = mechanism
    broker.on[SASL_AUTHENTICATE] = scram_challenge(4096)
    broker.on[METADATA] = announced
    node = await broker.start()
    options = {
        **SASL,
        "bootstrap_servers": f"127.0.0.1:{node.port}",
        "sasl_mechanism": mechanism,
        "sasl_plain_password": "planted-password",
        "request_timeout_ms": 20_000,
    }
    try:
        with pytest.raises(KafkaConnectionError):
            await opened(make, options)
    finally:
        await broker.stop()
    assert SASL_AUTHENTICATE in broker.asked
    lines = [logging.Formatter().format(each) for each in caplog.records]
    assert any("Request to" in line for line in lines)
    assert [line for line in lines if "planted-password" in line or "p=" in line] == []


def announced(_correlation: int, _data: bytes) -> bytes:
    """The size of a frame, and the first of its bytes."""
    return struct.pack(">i", ANNOUNCED) + bytes(1000)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("make", "more", "limit"),
    [
        (kafka_producer, {}, 51),
        (kafka_admin, {}, 51),
        (kafka_consumer, {}, 51),
        (kafka_consumer, {"fetch_max_bytes": 64 * 2**20}, 65),
        (kafka_consumer, {"fetch_max_bytes": 1000}, 17),
    ],
)
async def test_an_authenticated_broker_cannot_announce_a_frame_of_gigabytes(
    make: Callable[..., Any], more: dict[str, Any], limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = HostileBroker()
    broker.mechanism = "PLAIN"
    broker.on[SASL_AUTHENTICATE] = lambda correlation, _: authenticated(correlation, b"")
    broker.on[METADATA] = announced
    node = await broker.start()
    options = {
        **SASL,
        "bootstrap_servers": f"127.0.0.1:{node.port}",
        "sasl_mechanism": "PLAIN",
        "request_timeout_ms": 20_000,
        **more,
    }
    try:
        async with asyncio.timeout(10):
            with pytest.raises(KafkaConnectionError):
                await opened(make, options)
        await broker.until(lambda: broker.open == 0)
    finally:
        await broker.stop()
    assert METADATA in broker.asked
    expected = f"a response of {ANNOUNCED} bytes exceeds the limit of {limit * 2**20}"
    assert expected in caplog.text


async def test_a_connection_of_aiokafka_rejects_a_frame_beyond_its_limit() -> None:
    async def announce(_correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(announced(0, b""))

    broker = FakeBroker(announce)
    node = await broker.start()
    connection = None
    try:
        connection = await open_limited(
            node.host, node.port, request_timeout_ms=20_000, max_response=frame_limit(1000)
        )
        async with asyncio.timeout(10):
            with pytest.raises(KafkaConnectionError, match=f"{ANNOUNCED} bytes exceeds the limit"):
                await connection.send(MetadataRequest([]))
        await broker.until(lambda: broker.open == 0)
        assert not connection.connected()
    finally:
        if connection is not None:
            connection.close()
        await broker.stop()
