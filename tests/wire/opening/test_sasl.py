"""How the mechanisms of SASL authenticate a connection, and what is wrong when they cannot."""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from wire.fake_broker import API_VERSIONS
from wire.opening.opening_server import (
    LONG,
    PLAIN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Opening,
    Server,
    authenticated,
    connected,
    mechanisms_response,
)

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.runtime.net.authentication.errors import (
    AuthenticationRejectedError,
    ExchangeError,
    MechanismNotEnabledError,
    NoTokenError,
)
from asyncrevoke.client.runtime.net.connection import RequestFailed


async def test_plain_sends_the_name_and_the_password_in_one_message(
    server: Server, opening: Opening
) -> None:
    assert (await opening(**PLAIN)).session is None
    assert server.asked == [(1, API_VERSIONS, 3), (1, SASL_HANDSHAKE, 1), (1, SASL_AUTHENTICATE, 1)]
    assert server.received[1].endswith(b"\0\5PLAIN")
    assert server.received[2].endswith(struct.pack(">i", 16) + b"user\0user\0pencil")


async def test_a_session_with_a_lifetime_is_to_be_renewed_before_its_end(
    server: Server, opening: Opening
) -> None:
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, lifetime_ms=10_000
    )
    now = asyncio.get_running_loop().time()
    session = (await opening(**PLAIN)).session
    assert session is not None
    assert now + 8 <= session.renew_at < session.ends_at < now + 10


@pytest.mark.parametrize("error", [0, 33])
async def test_the_mechanisms_that_a_broker_has_enabled_are_named(
    server: Server, opening: Opening, error: int
) -> None:
    server.on[SASL_HANDSHAKE] = lambda _, __, correlation, ___: mechanisms_response(
        correlation, "SCRAM-SHA-512", "GSSAPI", error=error
    )
    with pytest.raises(MechanismNotEnabledError) as rejected:
        await opening(**PLAIN)
    assert rejected.value.enabled == ("SCRAM-SHA-512", "GSSAPI")
    assert all(api != SASL_AUTHENTICATE for _, api, _ in server.asked)


@pytest.mark.parametrize(
    ("error", "said", "expected"),
    [
        (58, "bad password", "SASL_AUTHENTICATION_FAILED: bad password"),
        (58, "", "SASL_AUTHENTICATION_FAILED"),
        (58, "pencil is wrong", r"\*\*\* is wrong"),
        (34, "", "ILLEGAL_SASL_STATE .*is SASL enabled on this listener"),
    ],
)
async def test_a_rejection_has_the_brokers_reason(
    server: Server, opening: Opening, error: int, said: str, expected: str
) -> None:
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, error=error, said=said
    )
    with pytest.raises(AuthenticationRejectedError, match=expected) as rejected:
        await opening(**PLAIN)
    assert "pencil" not in str(rejected.value)


@pytest.mark.parametrize(
    ("without", "kind", "detail"),
    [
        (SASL_HANDSHAKE, FailureKind.AUTHENTICATION, "does not offer SaslHandshake"),
        (SASL_AUTHENTICATE, FailureKind.AUTHENTICATION, "does not offer SaslAuthenticate"),
    ],
)
async def test_a_server_without_sasl_is_named(
    server: Server, without: int, kind: FailureKind, detail: str
) -> None:
    del server.versions[without]
    with pytest.raises(RequestFailed, match=detail) as failed:
        await connected(await server.start(), **PLAIN)
    assert failed.value.kind is kind


async def test_another_error_of_authentication_is_tried_again(server: Server) -> None:
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, error=-1, said="the directory is down"
    )
    with pytest.raises(RequestFailed, match="the directory is down") as failed:
        await connected(await server.start(), **PLAIN)
    assert failed.value.kind is FailureKind.UNREACHABLE


class Provider:
    """Any object with ``async def token()``, as the option's check accepts it."""

    def __init__(self, token: object, extensions: object = None) -> None:
        self._token = token
        self.extensions = extensions

    async def token(self) -> Any:
        return self._token


def oauth(provider: object) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.mark.parametrize(
    ("extensions", "sent"),
    [
        (None, b"n,,\1auth=Bearer t\1\1"),
        (dict, b"n,,\1auth=Bearer t\1\1"),
        (lambda: {"a": "1", "b": "2"}, b"n,,\1auth=Bearer t\1a=1\1b=2\1\1"),
    ],
)
async def test_a_token_is_sent_with_its_extensions(
    server: Server, opening: Opening, extensions: object, sent: bytes
) -> None:
    await opening(**oauth(Provider("t", extensions)))
    assert server.received[2].endswith(struct.pack(">i", len(sent)) + sent)


@pytest.mark.parametrize(("token", "what"), [(None, "NoneType"), (b"t", "bytes"), ("", "empty")])
async def test_what_is_no_token_is_named(
    server: Server, opening: Opening, token: object, what: str
) -> None:
    with pytest.raises(NoTokenError, match=what):
        await opening(**oauth(Provider(token)))
    assert all(api != SASL_AUTHENTICATE for _, api, _ in server.asked)


class SharedTask:
    """A provider whose connections wait for the same task."""

    def __init__(self) -> None:
        self.task: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting = asyncio.Semaphore(0)

    async def token(self) -> str:
        self.waiting.release()
        return await self.task


async def test_a_token_that_is_cancelled_for_another_connection_is_no_cancellation(
    server: Server,
) -> None:
    provider, node = SharedTask(), await server.start()
    first, second = (asyncio.ensure_future(connected(node, **oauth(provider))) for _ in range(2))
    async with asyncio.timeout(LONG):
        await provider.waiting.acquire()
        await provider.waiting.acquire()
    first.cancel()
    with pytest.raises(RequestFailed, match="token provider failed: CancelledError") as failed:
        await second
    assert failed.value.kind is FailureKind.UNREACHABLE
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_broker_that_accepts_a_token_after_it_has_rejected_it_is_not_believed(
    server: Server, opening: Opening
) -> None:
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, data: authenticated(
        correlation, b'{"status":"invalid_token"}' if data.endswith(b"\1\1") else b""
    )
    with pytest.raises(AuthenticationRejectedError, match="invalid_token"):
        await opening(**oauth(Provider("pencil")))
    assert server.received[-1].endswith(struct.pack(">i", 1) + b"\1")


async def test_no_error_has_a_token_that_the_broker_sends_back(
    server: Server, opening: Opening
) -> None:
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, b"no such token: pencil"
    )
    with pytest.raises(AuthenticationRejectedError, match=r"no such token: \*\*\*"):
        await opening(**oauth(Provider("pencil")))


class Ticket:
    """The security context of a client that has a ticket, as the package ``gssapi`` has it."""

    def __init__(self, layers: bytes) -> None:
        self._layers = layers
        self.complete = False
        self.tokens: list[bytes | None] = []

    def step(self, token: bytes | None) -> bytes | None:
        self.tokens.append(token)
        self.complete = len(self.tokens) == 2
        return None if self.complete else b"ticket"

    def unwrap(self, token: bytes) -> SimpleNamespace:
        assert token == b"layers"
        return SimpleNamespace(message=self._layers)

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped:" + message)


def install_kerberos(monkeypatch: pytest.MonkeyPatch, ticket: Ticket) -> list[str]:
    principals: list[str] = []

    def name(principal: str, name_type: str) -> SimpleNamespace:
        assert name_type == "service"
        principals.append(principal)
        return SimpleNamespace(canonicalize=str)

    def context(name: str, usage: str) -> Ticket:
        assert (name, usage) == ("kerberos", "initiate")
        return ticket

    package = SimpleNamespace(
        Name=name,
        NameType=SimpleNamespace(hostbased_service="service"),
        MechType=SimpleNamespace(kerberos="kerberos"),
        SecurityContext=context,
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return principals


GSSAPI: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


async def test_gssapi_proves_the_ticket_and_asks_for_no_security_layer(
    server: Server, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = Ticket(b"\7\0\1\0")
    principals = install_kerberos(monkeypatch, ticket)
    answers = iter([b"challenge", b"layers", b""])
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, next(answers)
    )
    await opening(**GSSAPI)
    assert principals == ["kafka@127.0.0.1"]
    assert ticket.tokens == [None, b"challenge"]
    assert [data.rpartition(b"\0\0\0")[2][1:] for data in server.received[2:4]] == [b"ticket", b""]
    assert server.received[4].endswith(b"wrapped:\1\0\0\0kafka@127.0.0.1")


@pytest.mark.parametrize("layers", [b"\6\0\1\0", b"\1", b""])
async def test_gssapi_with_a_security_layer_is_rejected(
    server: Server, opening: Opening, monkeypatch: pytest.MonkeyPatch, layers: bytes
) -> None:
    install_kerberos(monkeypatch, Ticket(layers))
    answers = iter([b"challenge", b"layers"])
    server.on[SASL_AUTHENTICATE] = lambda _, __, correlation, ___: authenticated(
        correlation, next(answers)
    )
    with pytest.raises(ExchangeError, match="security layer"):
        await opening(**GSSAPI)


async def test_gssapi_without_its_package_says_how_to_install_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(RequestFailed, match="pip install gssapi") as failed:
        await connected(await server.start(), **GSSAPI)
    assert failed.value.kind is FailureKind.AUTHENTICATION


@pytest.mark.parametrize("options", [PLAIN, oauth(Provider("pencil"))])
async def test_no_log_line_has_a_secret(
    opening: Opening, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    await opening(**options)
    assert "connected to" in caplog.text
    assert "pencil" not in caplog.text
