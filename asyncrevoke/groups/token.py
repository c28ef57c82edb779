"""OAUTHBEARER with a token that the user passes on the command line."""

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
        """There are none."""
        return {}

    def __repr__(self) -> str:
        return "GivenToken()"


AbstractTokenProvider.register(_GivenToken)  # aiokafka asks for an instance


def given_token(token: str) -> AbstractTokenProvider:
    """A token provider that always returns this token; its ``repr`` does not show it."""
    return cast("AbstractTokenProvider", _GivenToken(token))
