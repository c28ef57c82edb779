"""TLS and SASL with a real Apache Kafka: what works, and what the error of each mistake says."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, cast

import pytest

from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Replied, Send
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def secure_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512")
    with KafkaBroker(security=security) as broker:
        yield broker


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(security=Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN")) as broker:
        yield broker


async def ask(broker: RunningBroker, **changed: object) -> Replied | Failed:
    """Ask for metadata with the options that the broker needs; None leaves an option out."""
    options = {**cast("dict[str, object]", broker.client_options()), **changed}
    options = {name: value for name, value in options.items() if value is not None}
    options["bootstrap_servers"] = broker.bootstrap_servers
    channels = Channels(ConsumerConfig.from_options(**options))
    host, _, port = broker.bootstrap_servers.partition(":")
    request = messages.MetadataRequest(topics=())
    try:
        return await channels.request(
            Send(1, request, Node(-1, host, int(port)), Channel.METADATA, 20)
        )
    finally:
        await channels.close()


def failed(outcome: Replied | Failed) -> tuple[FailureKind, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.kind, outcome.detail


async def test_scram_over_tls_authenticates(secure_broker: KafkaBroker) -> None:
    outcome = await ask(secure_broker)
    assert isinstance(outcome, Replied), outcome


async def test_sasl_plain_authenticates(sasl_broker: KafkaBroker) -> None:
    outcome = await ask(sasl_broker)
    assert isinstance(outcome, Replied), outcome


@pytest.mark.parametrize("wrong", ["sasl_plain_username", "sasl_plain_password"])
async def test_wrong_credentials_are_rejected_and_the_message_does_not_repeat_them(
    secure_broker: KafkaBroker, sasl_broker: KafkaBroker, wrong: str
) -> None:
    for broker in (secure_broker, sasl_broker):
        kind, detail = failed(await ask(broker, **{wrong: "not-this-one"}))
        assert kind is FailureKind.AUTHENTICATION
        assert f"rejected the authentication with {broker.security.mechanism}" in detail
        assert "secret" not in detail
        assert "not-this-one" not in detail


async def test_a_mechanism_that_is_not_enabled_is_named(sasl_broker: KafkaBroker) -> None:
    kind, detail = failed(await ask(sasl_broker, sasl_mechanism="SCRAM-SHA-256"))
    assert kind is FailureKind.AUTHENTICATION
    assert "has not enabled sasl_mechanism SCRAM-SHA-256" in detail


async def test_a_certificate_of_an_unknown_authority_is_rejected(
    secure_broker: KafkaBroker,
) -> None:
    kind, detail = failed(await ask(secure_broker, ssl_context=ssl.create_default_context()))
    assert kind is FailureKind.AUTHENTICATION
    assert "no TLS" in detail
    assert "ssl_context" in detail


async def test_tls_against_a_plain_listener_is_named(sasl_broker: KafkaBroker) -> None:
    kind, detail = failed(
        await ask(
            sasl_broker, security_protocol="SASL_SSL", ssl_context=ssl.create_default_context()
        )
    )
    assert kind in {FailureKind.AUTHENTICATION, FailureKind.UNREACHABLE}
    assert "security_protocol" in detail


async def test_no_tls_against_a_tls_listener_is_unreachable_with_a_hint(
    secure_broker: KafkaBroker,
) -> None:
    kind, detail = failed(
        await ask(secure_broker, security_protocol="SASL_PLAINTEXT", ssl_context=None)
    )
    assert kind is FailureKind.UNREACHABLE
    assert "check security_protocol" in detail


async def test_no_sasl_against_a_sasl_listener_is_disconnected_with_a_hint(
    sasl_broker: KafkaBroker,
) -> None:
    kind, detail = failed(
        await ask(
            sasl_broker,
            security_protocol="PLAINTEXT",
            sasl_mechanism=None,
            sasl_plain_username=None,
            sasl_plain_password=None,
        )
    )
    assert kind is FailureKind.DISCONNECTED
    assert "check security_protocol" in detail
