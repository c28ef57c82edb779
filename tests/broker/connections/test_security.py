"""TLS, SASL and access control with a real Apache Kafka that has a listener of each kind."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
import trustme
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from typer.testing import CliRunner
from typing_extensions import override

from asyncrevoke import Consumer
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.broker.listeners.ports import HOST, free_ports
from asyncrevoke.broker.listeners.tokens import unsigned_token
from asyncrevoke.broker.process.properties import BrokerNode, new_cluster_id
from asyncrevoke.cli.app import app
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.config.security import client_options
from asyncrevoke.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.errors import GroupAuthorizationError, TopicAuthorizationError
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.integrations.starlette import dashboard_routes, health_routes
from asyncrevoke.journal import Journal, KafkaSink
from asyncrevoke.protocol import messages
from asyncrevoke.runtime.net.channels import Channels
from asyncrevoke.runtime.net.kafka_clients import kafka_producer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typer.testing import Result

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

MODULES = "org.apache.kafka.common.security"
PASSWORD = "alice-secret"
# What a listener asks for: its protocol, and its mechanism if it has one.
LISTENERS: Mapping[str, tuple[str, str | None]] = {
    "TRUSTED": ("SSL", None),
    "EXPIRED": ("SSL", None),
    "OTHERHOST": ("SSL", None),
    "MUTUAL": ("SSL", None),
    "PLAINTLS": ("SASL_SSL", "PLAIN"),
    "SCRAM256": ("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM512": ("SASL_SSL", "SCRAM-SHA-512"),
    "BEARER": ("SASL_SSL", "OAUTHBEARER"),
    "SHORT": ("SASL_PLAINTEXT", "OAUTHBEARER"),
    "SHORTSCRAM": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
}
JAAS = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required;",
    "OAUTHBEARER": (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}
SESSION_MS = 1500


class Tokens:
    """Gives a token for alice, and counts how often."""

    def __init__(self) -> None:
        self.given: list[str] = []

    async def token(self) -> str:
        self.given.append(unsigned_token("alice"))
        return self.given[-1]

    def extensions(self) -> dict[str, str]:
        return {}


AbstractTokenProvider.register(Tokens)


class Authority:
    """Certificates, their keys and key stores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._issuer = trustme.CA()
        self.path = folder / "authority.pem"
        self.path.write_bytes(self._issuer.cert_pem.bytes())

    def key_store(self, name: str, *hosts: str, **options: Any) -> str:
        issued = self._issuer.issue_cert(*hosts, **options)
        key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + b"".join(each.bytes() for each in issued.cert_chain_pems)
        )
        return str(path)

    def client(self, certificate: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


class WithBothScrams(Security):
    """Users that have credentials of both kinds."""

    @override
    def format_arguments(self) -> list[str]:
        arguments = super().format_arguments()
        return arguments + [each.replace("SHA-256", "SHA-512") for each in arguments]


class SecureBroker:
    """A broker with all of the listeners, and how to reach each of them."""

    def __init__(self, folder: Path) -> None:
        self.authority = authority = Authority(folder)
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        stores = {
            "EXPIRED": authority.key_store("expired", HOST, not_after=past),
            "OTHERHOST": authority.key_store("other", "kafka.example"),
        }
        trusted = authority.key_store("broker", HOST, "localhost")
        self.certificate = authority.key_store("client", "alice@example.org")
        free = free_ports()
        self.ports = {name: next(free) for name in LISTENERS}
        properties: dict[str, str] = {"connections.max.reauth.ms": "0"}
        for name, (protocol, mechanism) in LISTENERS.items():
            prefix = f"listener.name.{name.lower()}"
            if protocol.endswith("SSL"):
                properties[f"{prefix}.ssl.keystore.type"] = "PEM"
                properties[f"{prefix}.ssl.keystore.location"] = stores.get(name, trusted)
            if mechanism is not None:
                properties[f"{prefix}.sasl.enabled.mechanisms"] = mechanism
                jaas = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
                properties[jaas] = JAAS[mechanism]
            if name.startswith("SHORT") and mechanism is not None:
                reauth = f"{prefix}.{mechanism.lower()}.connections.max.reauth.ms"
                properties[reauth] = str(SESSION_MS)
        properties["listener.name.mutual.ssl.client.auth"] = "required"
        properties["listener.name.mutual.ssl.principal.mapping.rules"] = "RULE:^.*$/alice/"
        properties["listener.name.mutual.ssl.truststore.type"] = "PEM"
        properties["listener.name.mutual.ssl.truststore.location"] = str(authority.path)
        own = BrokerNode.choose(free)
        addresses = {"CLIENTS": own.clients_port, "BROKERS": own.brokers_port, **self.ports}
        kinds = {name: protocol for name, (protocol, _) in LISTENERS.items()}
        kinds |= {"CLIENTS": "SASL_PLAINTEXT", "BROKERS": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        listeners = [f"{name}://{HOST}:{port}" for name, port in addresses.items()]
        properties["advertised.listeners"] = ",".join(listeners)
        controller = f"CONTROLLER://{HOST}:{own.controller_port}"
        properties["listeners"] = ",".join([*listeners, controller])
        properties["listener.security.protocol.map"] = ",".join(
            f"{name}:{kind}" for name, kind in kinds.items()
        )
        security = WithBothScrams(
            protocol="SASL_PLAINTEXT",
            mechanism="SCRAM-SHA-256",
            users={"alice": PASSWORD, "bob": "bob-secret"},
            acls=True,
        )
        self.broker = KafkaBroker(security=security, properties=properties)
        self.broker.join_cluster(1, (own,), new_cluster_id())

    def options(self, listener: str, **changed: object) -> dict[str, Any]:
        protocol, mechanism = LISTENERS[listener]
        options: dict[str, Any] = {
            "bootstrap_servers": f"{HOST}:{self.ports[listener]}",
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            options["ssl_context"] = self.authority.client()
        if mechanism == "OAUTHBEARER":
            options |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Tokens()}
        elif mechanism is not None:
            options |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": PASSWORD,
            }
        return options | changed

    async def ask(self, listener: str, **changed: object) -> Replied | Failed:
        """The answer to a request for metadata."""
        channels = Channels(ConsumerConfig.from_options(**self.options(listener, **changed)))
        node = Node(-1, HOST, self.ports[listener])
        try:
            return await channels.request(
                Send(1, messages.MetadataRequest(topics=()), node, Channel.METADATA, 20)
            )
        finally:
            await channels.close()

    async def refusal(self, listener: str, **changed: object) -> str:
        """Why a connection cannot be opened, and never will be."""
        outcome = await self.ask(listener, **changed)
        assert isinstance(outcome, Failed), outcome
        assert outcome.kind is FailureKind.AUTHENTICATION, outcome
        return outcome.detail


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    secure = SecureBroker(tmp_path_factory.mktemp("secure"))
    with secure.broker:
        yield secure


# --- TLS -----------------------------------------------------------------------------------------


async def test_a_broker_whose_certificate_is_trusted_is_connected_to(secure: SecureBroker) -> None:
    outcome = await secure.ask("TRUSTED")
    assert isinstance(outcome, Replied), outcome


async def test_each_fault_of_a_certificate_is_told_apart(secure: SecureBroker) -> None:
    expired = await secure.refusal("EXPIRED")
    assert "its certificate has expired" in expired
    other = await secure.refusal("OTHERHOST")
    assert f"its certificate is not for {HOST}" in other
    unknown = await secure.refusal("TRUSTED", ssl_context=ssl.create_default_context())
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
        detail = await secure.refusal("MUTUAL", ssl_context=context(certificate))
        assert "refuses this client's certificate, or asks for one and got none" in detail
        assert "load_cert_chain" in detail


# --- SASL ----------------------------------------------------------------------------------------

BY_SASL = ["PLAINTLS", "SCRAM256", "SCRAM512", "BEARER"]


@pytest.mark.parametrize("listener", BY_SASL)
async def test_each_mechanism_authenticates_over_tls(secure: SecureBroker, listener: str) -> None:
    outcome = await secure.ask(listener)
    assert isinstance(outcome, Replied), outcome


@pytest.mark.parametrize("listener", ["PLAINTLS", "SCRAM256", "SCRAM512"])
async def test_each_mechanism_refuses_a_wrong_password(secure: SecureBroker, listener: str) -> None:
    detail = await secure.refusal(listener, sasl_plain_password="wrong-one")
    assert f"refused to authenticate with {LISTENERS[listener][1]}" in detail
    assert "wrong-one" not in detail


# --- sessions that end (KIP-368) -----------------------------------------------------------------


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
    answers: list[Replied | Failed] = []
    try:
        while loop.time() < until:
            answers.append(await channels.request(Send(1, request, node, Channel.METADATA, 20)))
            await asyncio.sleep(0.01)
    finally:
        await channels.close()
    assert [each for each in answers if isinstance(each, Failed)] == []
    if listener == "SHORT":
        assert len(options["sasl_oauth_token_provider"].given) >= 3


async def test_a_producer_and_a_consumer_outlive_their_sessions(
    secure: SecureBroker, caplog: pytest.LogCaptureFixture
) -> None:
    secure.broker.create_topic("sessions", 1)
    secure.broker.allow("alice", "topic", "sessions", ["read", "write", "describe"])
    secure.broker.allow("alice", "group", "sessions", ["read"])
    options = secure.options("SHORT")
    config = ConsumerConfig.from_options(**options)
    consumer = Consumer("sessions", group_id="sessions", commit_interval=0.1, **options)
    producer = kafka_producer(**client_options(config))
    await producer.start()
    seen: list[bytes | None] = []
    try:
        async with asyncio.timeout(60), consumer:
            loop = asyncio.get_running_loop()
            until = loop.time() + 2.5 * SESSION_MS / 1000
            count = 0
            while loop.time() < until or len(seen) < count:
                if loop.time() < until:
                    await producer.send_and_wait("sessions", b"%d" % count)
                    count += 1
                step = await consumer.poll(timeout=0.05)
                seen += [record.value for record in step.records]
                assert not step.lost
    finally:
        await producer.stop()
    assert seen == [b"%d" % number for number in range(count)]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert not [
        each for each in warnings if each.startswith(("membership", "waiting for a broker"))
    ]


# --- access control ------------------------------------------------------------------------------


async def test_a_refused_topic_and_a_refused_group_are_named(secure: SecureBroker) -> None:
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


# --- commands ------------------------------------------------------------------------------------


def command(secure: SecureBroker, listener: str, *words: str, **variables: str) -> Result:
    where = ["--bootstrap-servers", f"localhost:{secure.ports[listener]}"]
    protocol = ["--security-protocol", LISTENERS[listener][0]]
    trust = ["--ca-file", str(secure.authority.path)]
    return CliRunner().invoke(app, [*words, *where, *protocol, *trust], env=variables)


def test_the_groups_command_shows_its_certificate(secure: SecureBroker) -> None:
    done = command(secure, "MUTUAL", "groups", "--json", "--client-certificate", secure.certificate)
    assert done.exit_code == 0, done.stderr
    assert isinstance(json.loads(done.stdout), list)
    without = command(secure, "MUTUAL", "groups", "--json")
    assert without.exit_code == 1


def test_a_command_that_had_no_token_before_takes_one(secure: SecureBroker, tmp_path: Path) -> None:
    words = ["journal", "collect", str(tmp_path / "new"), "--topic", "no-such-topic"]
    token = unsigned_token("alice")
    bearer = [*words, "--sasl-mechanism", "OAUTHBEARER"]
    done = command(secure, "BEARER", *bearer, ASYNCREVOKE_SASL_TOKEN=token)
    assert done.exit_code == 2
    assert "has no topic 'no-such-topic'" in done.stderr.replace("\n", " ")
    refused = command(secure, "BEARER", *bearer, ASYNCREVOKE_SASL_TOKEN="not.a-token.")
    assert refused.exit_code == 1
    assert token not in done.output + refused.output


# --- secrets -------------------------------------------------------------------------------------

KEY, VALUE, HEADER = "planted-key", "planted-value", "planted-header"


class Order(pydantic.BaseModel):
    number: int


async def pages_of(web: Starlette) -> str:
    """All that the dashboard and the health answers show."""
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
    config = ConsumerConfig.from_options(**options)
    registry = CollectorRegistry()
    sink = KafkaSink(f"{topic}-journal", **client_options(config))
    consumer = Consumer(
        group_id=topic, commit_interval=0.1, journal=Journal(tmp_path / "j", sink=sink), **options
    )
    consumer.observe(PrometheusMetrics(registry))
    web = Starlette(routes=[*dashboard_routes(consumer), *health_routes(consumer)])

    @consumer.handler(topic, dead_letter=f"{topic}-letters")
    async def bill(order: Order) -> None: ...

    producer = kafka_producer(**client_options(config))
    await producer.start()
    shown: list[str] = []
    try:
        async with asyncio.timeout(60), consumer:
            for value in b'{"number": 1}', b'{"number": "%s"}' % VALUE.encode(), VALUE.encode():
                await producer.send_and_wait(
                    topic, value, key=KEY.encode(), headers=[("h", HEADER.encode())]
                )
            sent = "sent to the dead letter"
            while sum(sent in each.getMessage() for each in caplog.records) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await consumer.commit()
            shown += [await pages_of(web), repr(consumer), repr(consumer.health())]
            shown += [repr(consumer.config), repr(consumer.probe().facts()), repr(sink)]
            shown.append(generate_latest(registry).decode())
    finally:
        await producer.stop()
    shown += [logging.Formatter().format(each) for each in caplog.records]
    if listener == "BEARER":
        secrets += [
            part
            for token in options["sasl_oauth_token_provider"].given
            for part in token.split(".")
            if len(part) > 40
        ]
    assert any("ProduceRequest" in each for each in shown)
    assert [text for text in shown for secret in secrets if secret in text] == []
