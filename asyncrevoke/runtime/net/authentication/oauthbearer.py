"""OAUTHBEARER according to RFC 7628: detects a rejected token.

The broker answers a rejected token with a challenge and no error code, and waits for a dummy
message before it fails the exchange. aiokafka treats that challenge as success; the next request
on the connection would get no response.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["BearerExchange"]

_DUMMY = b"\x01"


class _Authenticator(Protocol):
    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None: ...


class BearerExchange:
    """Sends the dummy message, so that a rejected token is an authentication error."""

    def __init__(self, inner: _Authenticator) -> None:
        self._inner = inner
        self._answered = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """The next message; None when the exchange is over."""
        if challenge and not self._answered:
            self._answered = True
            return _DUMMY, True
        return await self._inner.step(challenge)
