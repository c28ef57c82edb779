"""No password, token or key is in a log line, an error or a response of a port."""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from asyncrevoke import AsyncRevokeError, ConfigError, Consumer
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.broker.listeners.security import unsigned_token

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "hunter2-and-nobody-else"

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


class Tokens:
    """Gives a token that the broker rejects."""

    async def token(self) -> str:
        return SECRET


AbstractTokenProvider.register(Tokens)


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(security=Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN")) as broker:
        yield broker


@pytest.fixture(scope="module")
def secure_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(security=Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512")) as broker:
        yield broker


@pytest.fixture(scope="module")
def token_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER")
    with KafkaBroker(security=security) as broker:
        yield broker


class Remembered:
    """Gives tokens that the broker takes, and keeps them for the test to look for."""

    def __init__(self) -> None:
        self.given: list[str] = []

    async def token(self) -> str:
        self.given.append(unsigned_token("alice"))
        return self.given[-1]

    def extensions(self) -> dict[str, str]:
        return {"tenant": SECRET}


AbstractTokenProvider.register(Remembered)


async def fate_of(**options: Any) -> list[str]:
    """Enter a consumer that cannot work; what its errors and its responses say."""
    said: list[str] = []
    consumer = Consumer("orders", group_id="secrets", close_timeout=1, **options)
    said += [repr(consumer), str(consumer), repr(consumer.config), str(consumer.config)]
    try:
        async with consumer:
            said.append(repr(await consumer.poll(timeout=2)))
            said += [repr(consumer.health()), repr(consumer.probe().details())]
    except AsyncRevokeError as error:
        said.append("".join(traceback.format_exception(error)))
        said += [repr(consumer.health()), repr(consumer.probe().details())]
    return said


def looked_through(said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    lines = [logging.Formatter().format(record) for record in caplog.records]
    assert lines
    found = [text for text in (*said, *lines, *map(repr, caplog.records)) if SECRET in text]
    assert found == []


@pytest.mark.parametrize(
    "options",
    [
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
    ],
    ids=str,
)
async def test_rejected_credentials_are_reported_without_their_secrets(
    options: dict[str, Any], sasl_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    if options["sasl_mechanism"] == "OAUTHBEARER":
        credentials: dict[str, Any] = {"sasl_oauth_token_provider": Tokens()}
    else:
        credentials = {"sasl_plain_username": "billing", "sasl_plain_password": SECRET}
    if options["security_protocol"] == "SASL_SSL":
        credentials["ssl_context"] = ssl.create_default_context()
    address = sasl_broker.bootstrap_servers
    looked_through(await fate_of(bootstrap_servers=address, **options, **credentials), caplog)


async def test_an_unreachable_broker_is_reported_without_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    credentials = {"sasl_plain_username": "billing", "sasl_plain_password": SECRET}
    said = await fate_of(bootstrap_servers="localhost:1", **options, **credentials)
    looked_through(said, caplog)


@pytest.mark.parametrize("kind", ["PLAIN", "SCRAM over TLS"])
async def test_an_authenticated_consumer_logs_no_credentials(
    kind: str,
    sasl_broker: KafkaBroker,
    secure_broker: KafkaBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    broker = sasl_broker if kind == "PLAIN" else secure_broker
    broker.create_topic(f"orders-{kind[:5].strip()}", 2)
    options = cast("dict[str, Any]", dict(broker.client_options()))
    options["bootstrap_servers"] = broker.bootstrap_servers
    consumer = Consumer(f"orders-{kind[:5].strip()}", group_id="let-in", **options)
    async with asyncio.timeout(60), consumer:
        while not consumer.assignment():
            await consumer.poll(timeout=0.1)
        said = [repr(consumer), repr(consumer.config), repr(consumer.health())]
    secret = str(options["sasl_plain_password"])
    lines = [logging.Formatter().format(record) for record in caplog.records]
    assert any("assigned" in line for line in lines)
    assert [text for text in (*said, *lines) if secret in text] == []


async def test_no_debug_line_contains_an_accepted_token(
    token_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    for topic in "orders", "letters":
        token_broker.create_topic(topic, 1)
    tokens = Remembered()
    options: dict[str, Any] = dict(token_broker.client_options())
    options["bootstrap_servers"] = token_broker.bootstrap_servers
    options["sasl_oauth_token_provider"] = tokens
    consumer = Consumer(group_id="let-in", **options)

    @consumer.handler("orders", dead_letter="letters")
    async def bill(order: bytes) -> None:
        raise LookupError("no such order")

    async with asyncio.timeout(60), consumer:
        async with AIOKafkaProducer(**token_broker.client_options()) as producer:
            await producer.send_and_wait("orders", b"1")
        while not any("record sent to" in each.getMessage() for each in caplog.records):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await consumer.commit()
        said = [repr(consumer), repr(consumer.config), repr(consumer.health())]
    lines = [logging.Formatter().format(record) for record in caplog.records]
    assert any("assigned" in line for line in lines)
    assert any("record sent to the dead letter topic" in line for line in lines)
    assert tokens.given
    looked_through([*said, *lines], caplog)
    secrets = [part for token in tokens.given for part in token.split(".")[1:2]]
    assert [text for text in (*said, *lines) for secret in secrets if secret in text] == []


async def test_no_debug_line_contains_a_rejected_token(
    token_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = await fate_of(
        bootstrap_servers=token_broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    assert any("AuthenticationError" in text for text in said)
    looked_through(said, caplog)


@pytest.mark.parametrize("password", [SECRET.encode(), [SECRET], {"password": SECRET}])
def test_a_password_of_the_wrong_type_raises_an_error_without_it(password: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Consumer(
            "orders",
            group_id="secrets",
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_plain_username="billing",
            sasl_plain_password=password,
        )
    assert "sasl_plain_password" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
