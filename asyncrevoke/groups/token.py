"""A bearer token that was given, for OAUTHBEARER."""

from __future__ import annotations

from aiokafka.abc import AbstractTokenProvider


class GivenToken(AbstractTokenProvider):  # type: ignore[misc]  # half typed
    """The same token for each connection; ``repr`` does not show it."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """None."""
        return {}

    def __repr__(self) -> str:
        return "GivenToken()"
