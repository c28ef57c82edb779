"""Token providers for OAUTHBEARER."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.abc import AbstractTokenProvider


class _TokenProvider:
    """Its ``repr`` shows no token."""

    def __init__(self, new_token: Callable[[], str]) -> None:
        self._new_token = new_token

    async def token(self) -> str:
        return self._new_token()

    def extensions(self) -> dict[str, str]:
        return {}


def token_provider(new_token: Callable[[], str]) -> AbstractTokenProvider:
    """A token provider that returns the tokens of this function."""
    return cast("AbstractTokenProvider", _TokenProvider(new_token))


def given_token(token: str) -> AbstractTokenProvider:
    """A token provider that always returns this token; its ``repr`` does not show it."""
    return token_provider(lambda: token)
