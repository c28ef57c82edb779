"""PLAIN (RFC 4616)."""

from __future__ import annotations


class PlainExchange:
    """One message, whose response is empty."""

    def __init__(self, username: str, password: str) -> None:
        self.secrets = (password,)
        self._message: bytes | None = f"{username}\0{username}\0{password}".encode()

    async def step(self, _challenge: bytes | None) -> bytes | None:
        """The message; then None."""
        message, self._message = self._message, None
        return message
