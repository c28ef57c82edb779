"""A server that answers ApiVersions and SASL as a test says."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override
from wire.fake_broker import API_VERSIONS, FakeBroker, api_versions_response, framed

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.runtime.net.connection import Connection
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads
from asyncrevoke.client.runtime.net.handshake import OpenedConnection

if TYPE_CHECKING:
    import asyncio

    from asyncrevoke.client.core.io.effects import Node

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LONG = 20.0
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "user",
    "sasl_plain_password": "pencil",
}
Opening: TypeAlias = Callable[..., Awaitable[OpenedConnection]]
# Gets the connection's number, the version, the correlation id and the request.
Answer: TypeAlias = Callable[[int, int, int, bytes], bytes | None]


class Server(FakeBroker):
    """Answers each request as ``on`` says, by its API key; None closes the connection."""

    def __init__(self) -> None:
        super().__init__(self._unexpected)
        self.versions |= {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
        self.on: dict[int, Answer] = {
            API_VERSIONS: lambda _, version, correlation, __: api_versions_response(
                correlation, self.versions, version
            ),
            SASL_HANDSHAKE: lambda _, __, correlation, ___: mechanisms_response(correlation),
            SASL_AUTHENTICATE: lambda _, __, correlation, ___: authenticated(correlation),
        }
        # Connection, API key and version.
        self.asked: list[tuple[int, int, int]] = []
        self.received: list[bytes] = []

    async def _unexpected(self, correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(struct.pack(">iih", correlation, 0, 0)))

    @override
    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        api, version, correlation = struct.unpack_from(">hhi", data)
        if api not in self.on:
            await self._unexpected(correlation, writer)
            return
        self.asked.append((self.connections, api, version))
        self.received.append(data)
        answer = self.on[api](self.connections, version, correlation, data)
        if answer is None:
            writer.close()
        else:
            writer.write(answer)

    @property
    def versions_asked(self) -> list[tuple[int, int]]:
        """Connection and version of each ApiVersions request."""
        return [(number, version) for number, api, version in self.asked if api == API_VERSIONS]


def mechanisms_response(correlation: int, *names: str, error: int = 0) -> bytes:
    texts = [name.encode() for name in names or ("PLAIN", "OAUTHBEARER", "GSSAPI")]
    listed = b"".join(struct.pack(">h", len(text)) + text for text in texts)
    return framed(struct.pack(">ihi", correlation, error, len(texts)) + listed)


def authenticated(
    correlation: int, data: bytes = b"", *, error: int = 0, said: str = "", lifetime_ms: int = 0
) -> bytes:
    """A frame of a SaslAuthenticateResponse, version 1."""
    text = said.encode()
    body = struct.pack(">ihh", correlation, error, len(text)) + text
    return framed(body + struct.pack(">i", len(data)) + data + struct.pack(">q", lifetime_ms))


async def connected(node: Node, **options: Any) -> Connection:
    return await Connection.open(
        node, ConsumerConfig(**options), DecodeThreads(), ReceiveBuffers(0), within=LONG
    )
