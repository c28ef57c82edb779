"""OAUTHBEARER as RFC 7628 has it: a token that is refused is told by a challenge.

The broker answers a refused token without an error code, with a challenge that says why, and waits
for a dummy message to fail the exchange. aiokafka takes that answer for a success; what is asked
next over the connection is then answered with nothing.
"""

from __future__ import annotations

from typing import Protocol

from aiokafka.conn import AIOKafkaConnection

_DUMMY = b"\x01"


class _Authenticator(Protocol):
    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None: ...


class _Challenged:
    def __init__(self, inner: _Authenticator) -> None:
        self._inner = inner
        self._answered = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        if challenge and not self._answered:
            self._answered = True
            return _DUMMY, True
        return await self._inner.step(challenge)


class BearerConnection(AIOKafkaConnection):  # type: ignore[misc]  # half typed
    """aiokafka's connection, by which a refused token is an authentication error."""

    def authenticator_oauth(self) -> _Challenged:
        """aiokafka's, and what it leaves out."""
        return _Challenged(super().authenticator_oauth())
