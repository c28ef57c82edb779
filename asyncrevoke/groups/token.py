"""A bearer token that was given, for OAUTHBEARER."""

from __future__ import annotations

from typing import cast

from aiokafka.abc import AbstractTokenProvider


class _GivenToken:
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


AbstractTokenProvider.register(_GivenToken)  # aiokafka asks for an instance


def given_token(token: str) -> AbstractTokenProvider:
    """This token for each connection, which the ``repr`` does not show."""
    return cast("AbstractTokenProvider", _GivenToken(token))
