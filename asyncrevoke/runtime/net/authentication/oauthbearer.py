"""OAUTHBEARER according to RFC 7628: detects a rejected token.

The broker responds to a rejected token with a challenge without an error code, and fails the
exchange after a dummy message. aiokafka treats that challenge as success; the next request on the
connection would get no response.
"""

from __future__ import annotations

from typing import Protocol

_DUMMY = b"\x01"


class _Authenticator(Protocol):
    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None: ...


class BearerExchange:
    """Sends the dummy message, so that a rejected token is an authentication error."""

    def __init__(self, inner: _Authenticator) -> None:
        self._inner = inner
        self._rejected = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """The next message; None when the exchange is over."""
        if challenge and not self._rejected:
            self._rejected = True
            return _DUMMY, True
        return await self._inner.step(challenge)
