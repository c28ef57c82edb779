"""The client's part of SCRAM: what it proves, what it asks of the broker, and what it rejects."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke.client.runtime.net.authentication.scram import (
    ScramError,
    ScramExchange,
    salted_password,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PASSWORD = "pencil"
SALT = bytes(range(16))
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def exchange(mechanism: str = "SCRAM-SHA-256", most: int = 100_000) -> ScramExchange:
    return ScramExchange(mechanism, "user", PASSWORD, most)


async def first_of(client: ScramExchange) -> str:
    message = await client.step(None)
    assert message is not None
    assert message.startswith(b"n,,n=user,r=")
    return message.decode().removeprefix("n,,")


def challenge_to(
    first: str, *, nonce: str = "more", salt: bytes | str = SALT, iterations: object = 4096
) -> str:
    text = salt if isinstance(salt, str) else base64.b64encode(salt).decode()
    return f"r={first.partition('r=')[2]}{nonce},s={text},i={iterations}"


def server_final(mechanism: str, first: str, challenge: str, final: str) -> tuple[bytes, bytes]:
    """The proof that a server expects, and its own signature."""
    kind = MECHANISMS[mechanism]
    bare = final.rpartition(",p=")[0]
    signed = f"{first},{challenge},{bare}".encode()
    salted = hashlib.pbkdf2_hmac(kind, PASSWORD.encode(), SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", kind)
    signature = hmac.digest(hashlib.new(kind, client_key).digest(), signed, kind)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return proof, hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_an_exchange_with_a_server_that_knows_the_password_ends(mechanism: str) -> None:
    client = exchange(mechanism)
    first = await first_of(client)
    challenge = challenge_to(first)
    step = await client.step(challenge.encode())
    assert step is not None
    final = step.decode()
    proof, signature = server_final(mechanism, first, challenge, final)
    assert final.rpartition(",p=")[2] == base64.b64encode(proof).decode()
    assert await client.step(b"v=" + base64.b64encode(signature)) is None


@pytest.mark.parametrize(
    "response",
    [
        b"",
        None,
        b"v=",
        b"v=AAAA",
        b"v=!!",
        b"e=invalid-proof",
        b"x=1",
        b"\xff",
        b"v=" + b"A" * 5000,
    ],
)
async def test_a_server_that_does_not_prove_that_it_knows_the_password_is_rejected(
    response: bytes | None,
) -> None:
    client = exchange()
    first = await first_of(client)
    await client.step(challenge_to(first).encode())
    with pytest.raises(ScramError):
        await client.step(response)


async def test_the_reason_of_a_server_is_shown_without_the_password() -> None:
    client = exchange()
    first = await first_of(client)
    await client.step(challenge_to(first).encode())
    with pytest.raises(ScramError, match=r"SCRAM exchange: not \*\*\*$"):
        await client.step(f"e=not {PASSWORD}".encode())


TOO_MANY = "sasl_scram_max_iterations=100000"


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ({"iterations": 2**31}, TOO_MANY),
        ({"iterations": 100_001}, TOO_MANY),
        ({"iterations": 4095}, "fewer than the 4096"),
        ({"iterations": 1}, "fewer than the 4096"),
        ({"iterations": -4096}, "not a number"),
        ({"iterations": "9" * 3000}, "not a number"),
        ({"iterations": "\u0664096"}, "not a number"),
        ({"salt": b""}, "salt"),
        ({"salt": bytes(1025)}, "salt"),
        ({"salt": "no base64!"}, "salt"),
        ({"salt": bytes(5000)}, "bytes"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": "x" * 2000}, "nonce"),
        ("r=another,s=AAAA,i=4096", "nonce"),
        ("m=ext,r=another,s=AAAA,i=4096", "malformed"),
        ("r=another,s=AAAA", "malformed"),
        ("", "its SCRAM message is empty"),
    ],
)
async def test_a_challenge_beyond_what_a_broker_may_ask_for_is_rejected(
    challenge: str | dict[str, Any], reason: str
) -> None:
    client = exchange()
    first = await first_of(client)
    text = challenge if isinstance(challenge, str) else challenge_to(first, **challenge)
    with pytest.raises(ScramError, match=reason) as rejected:
        await client.step(text.encode())
    assert PASSWORD not in str(rejected.value)


async def test_the_client_never_uses_a_nonce_twice() -> None:
    firsts = [await first_of(exchange()) for _ in range(100)]
    assert len(set(firsts)) == 100


@pytest.mark.parametrize("kind", [hashlib.sha256, hashlib.sha512])
@pytest.mark.parametrize("password", ["", "pencil", "p\u00e4ss", "x" * 64, "x" * 65, "x" * 500])
@pytest.mark.parametrize("iterations", [1, 255, 256, 257, 4096])
async def test_pieces_give_the_same_as_pbkdf2_at_once(
    kind: Callable[..., hashlib._Hash], password: str, iterations: int
) -> None:
    name = kind().name
    expected = hashlib.pbkdf2_hmac(name, password.encode(), SALT, iterations)
    assert await salted_password(kind, password.encode(), SALT, iterations) == expected


async def test_the_loop_runs_while_a_password_is_hashed_and_hashing_ends_when_it_is_cancelled() -> (
    None
):
    hashing = asyncio.create_task(salted_password(hashlib.sha256, b"pencil", SALT, 2**31))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not hashing.done()
    hashing.cancel()
    await asyncio.wait([hashing], timeout=10)
    assert hashing.cancelled()
