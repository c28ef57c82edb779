"""Connections with OAUTHBEARER: a token that the broker rejects, and a provider that fails."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from wire.channels.broker_channels import (
    BrokerChannels,
    Start,
    detail,
    kind,
)
from wire.fake_broker import framed

from asyncrevoke.client.core.io.effects import FailureKind

if TYPE_CHECKING:
    import asyncio

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def handshake_response(correlation: int) -> bytes:
    return framed(struct.pack(">ihih", correlation, 0, 1, 11) + b"OAUTHBEARER")


def rejection_response(correlation: int, why: bytes = b"no, thanks") -> bytes:
    return framed(struct.pack(">ihh", correlation, 58, len(why)) + why + bytes(4))


class Tokens:
    """A token provider that fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    async def token(self) -> str:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the identity server is down")
        return "planted-token"

    def extensions(self) -> dict[str, str]:
        return {}


async def _with_oauth(start: Start, provider: object, why: bytes = b"no, thanks") -> BrokerChannels:
    async def handshake_then_reject(correlation: int, writer: asyncio.StreamWriter) -> None:
        first = correlation == 2  # the version lookup was 1
        writer.write(
            handshake_response(correlation) if first else rejection_response(correlation, why)
        )

    setup = await start(
        handshake_then_reject,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    setup.broker.versions |= {SASL_HANDSHAKE: (1, 1), SASL_AUTHENTICATE: (0, 0)}
    return setup


async def test_credentials_that_the_broker_rejects_are_an_authentication_failure(
    start: Start,
) -> None:
    setup = await _with_oauth(start, Tokens())
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.AUTHENTICATION
    assert "rejected the authentication with OAUTHBEARER" in detail(outcome)
    assert "no, thanks" in detail(outcome)


async def test_a_token_that_a_broker_sends_back_is_left_out_of_the_error(start: Start) -> None:
    setup = await _with_oauth(start, Tokens(), b"planted-token is not valid")
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.AUTHENTICATION
    assert "*** is not valid" in detail(outcome)
    assert "planted-token" not in detail(outcome)


async def test_a_failing_token_provider_is_no_rejection_and_is_asked_again(start: Start) -> None:
    setup = await _with_oauth(start, Tokens(failures=1))
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "the token provider failed: ConnectionError at test_token_provider.py:" in detail(
        outcome
    )
    # The text may quote a secret, or the response of the identity server.
    assert "the identity server is down" not in detail(outcome)
    assert kind(await setup.send()) is FailureKind.AUTHENTICATION


async def test_the_error_of_a_provider_is_named_by_type_and_place_alone(start: Start) -> None:
    class NoExtensions(Tokens):
        def extensions(self) -> dict[str, str]:
            raise LookupError("planted-secret")

    setup = await _with_oauth(start, NoExtensions())
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "the token provider failed: LookupError at test_token_provider.py:" in detail(outcome)
    assert "planted-secret" not in detail(outcome)


async def test_a_provider_needs_no_extensions(start: Start) -> None:
    class TokenAlone:
        async def token(self) -> str:
            return "planted-token"

    setup = await _with_oauth(start, TokenAlone())
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.AUTHENTICATION
    assert "rejected the authentication with OAUTHBEARER" in detail(outcome)
