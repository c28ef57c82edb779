"""TLS, SASL and access control with a real Apache Kafka that has a listener of each kind."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pydantic
import pytest
from broker.connections.secured_broker import (
    LISTENERS,
    PASSWORD,
    SESSION_MS,
    Authority,
    SecureBroker,
)
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from asyncrevoke import Consumer, Producer
from asyncrevoke.broker.listeners.ports import HOST
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, Node, Replied, Send
from asyncrevoke.client.errors import GroupAuthorizationError, PublishError, TopicAuthorizationError
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.integrations.starlette import dashboard_routes, health_routes
from asyncrevoke.journal import Journal, KafkaSink

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


# --- TLS -----------------------------------------------------------------------------------------


async def test_a_broker_whose_certificate_is_trusted_is_connected_to(secure: SecureBroker) -> None:
    outcome = await secure.ask("TRUSTED")
    assert isinstance(outcome, Replied), outcome


async def test_each_fault_of_a_certificate_has_its_own_error(secure: SecureBroker) -> None:
    expired = await secure.rejection("EXPIRED")
    assert "its certificate has expired" in expired
    other = await secure.rejection("OTHERHOST")
    assert f"its certificate is not for {HOST}" in other
    unknown = await secure.rejection("TRUSTED", ssl_context=ssl.create_default_context())
    assert "an authority that ssl_context does not trust" in unknown
    for detail, listener in ((expired, "EXPIRED"), (other, "OTHERHOST"), (unknown, "TRUSTED")):
        assert f"no TLS with {HOST}:{secure.ports[listener]}" in detail


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_is_asked_for_by_name(
    secure: SecureBroker, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    def context(certificate: str | None) -> ssl.SSLContext:
        made = secure.authority.client(certificate)
        made.minimum_version = made.maximum_version = version
        return made

    outcome = await secure.ask("MUTUAL", ssl_context=context(secure.certificate))
    assert isinstance(outcome, Replied), outcome
    strangers = Authority(tmp_path).key_store("stranger", "eve@example.org")
    for certificate in None, strangers:
        detail = await secure.rejection("MUTUAL", ssl_context=context(certificate))
        assert "rejects this client's certificate, or asks for one and got none" in detail
        assert "load_cert_chain" in detail


# --- SASL ----------------------------------------------------------------------------------------

BY_SASL = ["PLAINTLS", "SCRAM256", "SCRAM512", "BEARER"]


@pytest.mark.parametrize("listener", BY_SASL)
async def test_each_mechanism_authenticates_over_tls(secure: SecureBroker, listener: str) -> None:
    outcome = await secure.ask(listener)
    assert isinstance(outcome, Replied), outcome


@pytest.mark.parametrize("listener", ["PLAINTLS", "SCRAM256", "SCRAM512"])
async def test_each_mechanism_rejects_a_wrong_password(secure: SecureBroker, listener: str) -> None:
    detail = await secure.rejection(listener, sasl_plain_password="wrong-one")
    assert f"rejected the authentication with {LISTENERS[listener][1]}" in detail
    assert "wrong-one" not in detail


# --- sessions that end (KIP-368) -----------------------------------------------------------------

# Seconds left of a session, at least, when a connection is replaced: a request that takes longer
# may reach a broker that has stalled after the session has ended, which closes the connection.
LEAST_REST = 0.1 * SESSION_MS / 1000


@pytest.mark.parametrize("listener", ["SHORT", "SHORTSCRAM"])
async def test_connections_are_replaced_before_their_session_ends_and_no_request_fails(
    secure: SecureBroker, listener: str
) -> None:
    options = secure.options(listener)
    channels = Channels(ConsumerConfig.from_options(**options))
    node = Node(-1, HOST, secure.ports[listener])
    request = messages.MetadataRequest(topics=())
    loop = asyncio.get_running_loop()
    until = loop.time() + 2.5 * SESSION_MS / 1000
    tokens = options["sasl_oauth_token_provider"].given if listener == "SHORT" else [""] * 3
    failed: list[Failed] = []
    try:
        async with asyncio.timeout(60):
            while loop.time() < until or len(tokens) < 3:
                sent = loop.time()
                reply = await channels.request(Send(1, request, node, Channel.METADATA, 20))
                if isinstance(reply, Failed) and loop.time() - sent < LEAST_REST:
                    failed.append(reply)
                await asyncio.sleep(0.01)
    finally:
        await channels.close()
    assert failed == []


async def test_a_producer_and_a_consumer_outlive_their_sessions(
    secure: SecureBroker, caplog: pytest.LogCaptureFixture
) -> None:
    secure.broker.create_topic("sessions", 1)
    secure.broker.allow("alice", "topic", "sessions", ["read", "write", "describe"])
    secure.broker.allow("alice", "group", "sessions", ["read"])
    options = secure.options("SHORT")
    consumer = Consumer("sessions", group_id="sessions", commit_interval=0.1, **options)
    seen: list[bytes | None] = []
    slowest = 0.0
    async with asyncio.timeout(60), Producer(**options) as producer, consumer:
        loop = asyncio.get_running_loop()
        until = loop.time() + 2.5 * SESSION_MS / 1000
        count = 0
        while loop.time() < until or len(seen) < count:
            if (sent := loop.time()) < until:
                await producer.publish("sessions", b"%d" % count)
                slowest = max(slowest, loop.time() - sent)
                count += 1
            step = await consumer.poll(timeout=0.05)
            seen += [record.value for record in step.records]
            assert not step.lost
    assert seen == [b"%d" % number for number in range(count)]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert not [warning for warning in warnings if warning.startswith("membership")]
    if slowest < LEAST_REST - 0.05:
        assert not [warning for warning in warnings if warning.startswith("waiting for a broker")]


# --- access control ------------------------------------------------------------------------------


async def test_a_rejected_topic_and_a_rejected_group_are_named(secure: SecureBroker) -> None:
    for topic in "granted", "withheld":
        secure.broker.create_topic(topic, 1)
    secure.broker.allow("bob", "topic", "granted", ["read", "describe"])
    secure.broker.allow("bob", "group", "granted-group", ["read"])
    credentials = {"sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
    options = secure.options("SCRAM256", **credentials)
    consumer = Consumer("granted", group_id="withheld-group", close_timeout=1, **options)
    with pytest.raises(GroupAuthorizationError, match="'withheld-group'"):
        async with asyncio.timeout(20), consumer:
            await anext(consumer)
    consumer = Consumer("withheld", group_id="granted-group", close_timeout=1, **options)
    with pytest.raises(TopicAuthorizationError, match="'withheld'"):
        async with asyncio.timeout(20), consumer:
            await anext(consumer)


@pytest.mark.parametrize("is_visible", [True, False])
async def test_a_result_for_a_topic_without_write_permission_stops_the_consumer_before_its_record(
    secure: SecureBroker, is_visible: bool
) -> None:
    orders, results = f"orders-{is_visible}", f"results-{is_visible}"
    for topic in orders, results:
        secure.broker.create_topic(topic, 1)
    secure.broker.allow("bob", "topic", orders, ["read", "write", "describe"])
    secure.broker.allow("bob", "group", orders, ["read"])
    if is_visible:
        secure.broker.allow("bob", "topic", results, ["describe"])
    credentials = {"sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
    options = secure.options("SCRAM256", **credentials)
    consumer = Consumer(group_id=orders, close_timeout=5, **options)

    @consumer.handler(orders, publish_to=results)
    async def echo(value: bytes) -> bytes:
        return value

    async with Producer(**options) as producer:
        await producer.publish(orders, b"1")
    with pytest.raises(PublishError, match=f"{results}.*grant WRITE on the topic"):
        async with asyncio.timeout(30):
            await consumer.run()
    reader = Consumer(orders, group_id=orders, close_timeout=5, **options)
    async with asyncio.timeout(20), reader:
        assert [record.value for record in (await reader.poll(timeout=20)).records] == [b"1"]


# --- secrets -------------------------------------------------------------------------------------

KEY, VALUE, HEADER = "planted-key", "planted-value", "planted-header"


class Order(pydantic.BaseModel):
    number: int


async def pages_of(web: Starlette) -> str:
    """All that the responses of the dashboard and of the health port show."""
    async with AsyncClient(transport=ASGITransport(web), base_url="http://localhost") as client:
        paths = "/dashboard/", "/dashboard/view", "/livez", "/readyz"
        return "".join([(await client.get(path)).text for path in paths])


@pytest.mark.parametrize("listener", ["PLAINTLS", "SCRAM256", "SCRAM512", "BEARER", "MUTUAL"])
async def test_no_secret_and_no_content_of_a_record_is_shown_anywhere(
    secure: SecureBroker, listener: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    topic = f"secrets-{listener.lower()}"
    for name in topic, f"{topic}-letters", f"{topic}-journal":
        secure.broker.create_topic(name, 1)
        secure.broker.allow("alice", "topic", name, ["all"])
    secure.broker.allow("alice", "group", topic, ["all"])
    options = secure.options(listener)
    secrets = [PASSWORD, KEY, VALUE, HEADER]
    if listener == "MUTUAL":
        certificate = Path(secure.certificate)
        lines = certificate.read_text().splitlines()
        secrets += [line for line in lines if len(line) > 40]
        options["ssl_context"] = secure.authority.client(secure.certificate)
    registry = CollectorRegistry()
    sink = KafkaSink(f"{topic}-journal", **options)
    consumer = Consumer(
        group_id=topic, commit_interval=0.1, journal=Journal(tmp_path / "j", sink=sink), **options
    )
    consumer.observe(PrometheusMetrics(registry))
    web = Starlette(routes=[*dashboard_routes(consumer), *health_routes(consumer)])

    @consumer.handler(topic, dead_letter=f"{topic}-letters")
    async def bill(order: Order) -> None: ...

    shown: list[str] = []
    async with asyncio.timeout(60), Producer(**options) as producer, consumer:
        for value in b'{"number": 1}', b'{"number": "%s"}' % VALUE.encode(), VALUE.encode():
            await producer.publish(topic, value, key=KEY, headers={"h": HEADER})
        sent = "sent to the dead letter"
        while sum(sent in record.getMessage() for record in caplog.records) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await consumer.commit()
        shown += [await pages_of(web), repr(consumer), repr(consumer.health())]
        shown += [repr(consumer.config), repr(consumer.probe().details()), repr(sink)]
        shown.append(generate_latest(registry).decode())
    shown += [logging.Formatter().format(record) for record in caplog.records]
    if listener == "BEARER":
        secrets += [
            part
            for token in options["sasl_oauth_token_provider"].given
            for part in token.split(".")
            if len(part) > 40
        ]
    assert [text for text in shown for secret in secrets if secret in text] == []
