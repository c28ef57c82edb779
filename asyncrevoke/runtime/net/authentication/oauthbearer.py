"""OAUTHBEARER as RFC 7628 has it: a token that is refused is told by a challenge.

The broker answers a refused token without an error code, with a challenge that says why, and waits
for a dummy message to fail the exchange. aiokafka takes that answer for a success; what is asked
next over the connection is then answered with nothing.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["BearerExchange"]

_DUMMY = b"\x01"


class _Authenticator(Protocol):
    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None: ...


class BearerExchange:
    """Sends the dummy message, so that a refused token is an authentication error."""

    def __init__(self, inner: _Authenticator) -> None:
        self._inner = inner
        self._answered = False

    async def step(self, challenge: bytes | None) -> tuple[bytes, bool] | None:
        """The next message; None when the exchange is over."""
        if challenge and not self._answered:
            self._answered = True
            return _DUMMY, True
        return await self._inner.step(challenge)
