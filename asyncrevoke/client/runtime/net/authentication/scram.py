"""SCRAM (RFC 5802, RFC 7677) with limits on the work that a broker may request.

A broker chooses the salt and the number of iterations for hashing the password. The client hashes
in steps on the event loop, not in a thread, so that a cancellation stops it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final, Protocol, Self

from asyncrevoke.client.runtime.net.authentication.errors import ExchangeError, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

# RFC 7677, section 4; Kafka's own client requires as many.
FEWEST_ITERATIONS: Final = 4096
_HASHES: Final = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}
_NONCE_BYTES: Final = 24
# Characters of a broker's message; Kafka's have about 150.
_LONGEST_MESSAGE: Final = 4096
_LONGEST_SALT: Final = 1024
_LONGEST_NONCE: Final = 1024
# Half a millisecond of the event loop.
_PIECE: Final = 256
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class _Digest(Protocol):
    @property
    def block_size(self) -> int: ...
    def copy(self) -> Self: ...
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class ScramError(ExchangeError):
    """A broker's message of a SCRAM exchange is rejected."""


class ScramExchange:
    """The client's part of one exchange.

    ``most_iterations`` is what a broker may ask for, the option ``sasl_scram_max_iterations``.
    """

    def __init__(self, mechanism: str, username: str, password: str, most_iterations: int) -> None:
        self.secrets = (password,)
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._most_iterations = most_iterations
        self._nonce = base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        quoted = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={quoted},r={self._nonce}"
        self._server_signature = b""
        self._sent = 0

    async def step(self, challenge: bytes | None) -> bytes | None:
        """The next message; None when the exchange is over.

        Raises ScramError for a challenge that is malformed or exceeds a limit, and if the broker
        does not prove that it knows the password. A cancellation stops the hashing.
        """
        self._sent += 1
        if self._sent == 1:
            return f"n,,{self._first}".encode()
        if self._sent == 2:
            return await self._proof(_text(challenge))
        self._verify(_text(challenge))
        return None

    async def _proof(self, challenge: str) -> bytes:
        nonce, salt, iterations = self._parameters(challenge)
        salted = await salted_password(self._hash, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        final = f"c=biws,r={nonce}"
        signed = f"{self._first},{challenge},{final}".encode()
        signature = self._mac(self._hash(client_key).digest(), signed)
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _parameters(self, challenge: str) -> tuple[str, bytes, int]:
        """The nonce, the salt and the iterations that a broker has chosen."""
        attributes = [part.partition("=") for part in challenge.split(",")[:3]]
        if [name for name, _, _ in attributes] != ["r", "s", "i"]:
            raise ScramError("its SCRAM challenge is malformed")
        nonce, salt_text, count = (value for _, _, value in attributes)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the nonce of its SCRAM challenge does not extend the client's")
        if len(nonce) > _LONGEST_NONCE:
            raise ScramError(f"the nonce of its SCRAM challenge has {len(nonce)} characters")
        salt = _decoded(salt_text, "salt")
        if not 0 < len(salt) <= _LONGEST_SALT:
            raise ScramError(
                f"the salt of its SCRAM challenge has {len(salt)} bytes, not 1 to {_LONGEST_SALT}"
            )
        if not (count.isascii() and count.isdigit()) or len(count) > 10:
            raise ScramError("the iterations of its SCRAM challenge are not a number")
        iterations = int(count)
        if iterations < FEWEST_ITERATIONS:
            raise ScramError(
                f"its SCRAM challenge asks for {iterations} iterations, fewer than the"
                f" {FEWEST_ITERATIONS} that protect a password"
            )
        if iterations > self._most_iterations:
            raise ScramError(
                f"its SCRAM challenge asks for {iterations} iterations, more than"
                f" sasl_scram_max_iterations={self._most_iterations}; raise that option if these"
                " credentials were created with so many"
            )
        return nonce, salt, iterations

    def _verify(self, final: str) -> None:
        name, _, value = final.split(",", 1)[0].partition("=")
        if name == "e":
            reason = without_secrets(self.secrets, value)
            raise ScramError(f"it ended the SCRAM exchange: {reason}")
        signature = _decoded(value, "signature") if name == "v" else b""
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError(
                "it did not prove that it knows this user's password: its SCRAM signature is wrong"
            )

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


async def salted_password(
    kind: Callable[[bytes], _Digest], password: bytes, salt: bytes, iterations: int
) -> bytes:
    """PBKDF2 (RFC 8018) with HMAC and one block of output. Yields to the event loop every half
    millisecond; a cancellation stops it."""
    block = kind(b"").block_size
    key = (kind(password).digest() if len(password) > block else password).ljust(block, b"\0")
    inner, outer = kind(key.translate(_INNER)).copy, kind(key.translate(_OUTER)).copy
    last = salt + b"\0\0\0\1"
    total = 0
    done = 0
    while done < iterations:
        upto = min(done + _PIECE, iterations)
        for _ in range(done, upto):
            first = inner()
            first.update(last)
            second = outer()
            second.update(first.digest())
            last = second.digest()
            total ^= int.from_bytes(last, "big")
        done = upto
        await asyncio.sleep(0)
    return total.to_bytes(len(last), "big")


def _text(challenge: bytes | None) -> str:
    if not challenge:
        raise ScramError("its SCRAM message is empty")
    if len(challenge) > _LONGEST_MESSAGE:
        raise ScramError(f"its SCRAM message has {len(challenge)} bytes")
    try:
        return challenge.decode()
    except UnicodeDecodeError as error:
        raise ScramError("its SCRAM message is not text") from error


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError(f"the {what} of its SCRAM message is not base64") from error
