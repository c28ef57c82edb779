"""OAUTHBEARER tokens for a thread in which the application's provider must not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from asyncrevoke.client.runtime.net.authentication.oauthbearer import RememberedToken

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider


class Tokens:
    """Gives a new token each time."""

    def __init__(self) -> None:
        self.asked = 0

    async def token(self) -> str:
        self.asked += 1
        return f"token-{self.asked}"

    def extensions(self) -> dict[str, str]:
        return {"asked": str(self.asked)}


async def test_the_provider_is_asked_each_time_and_its_newest_tokens_are_given_again() -> None:
    tokens = Tokens()
    remembered = RememberedToken(cast("AbstractTokenProvider", tokens))
    again = remembered.repeated()
    for number in (1, 2):
        assert await remembered.token() == f"token-{number}"
        assert remembered.extensions() == {"asked": str(number)}
        assert await again.token() == f"token-{number}"
        assert again.extensions() == {"asked": str(number)}
    assert tokens.asked == 2


async def test_without_a_token_there_is_none_to_give_again() -> None:
    tokens = Tokens()
    again = RememberedToken(cast("AbstractTokenProvider", tokens)).repeated()
    with pytest.raises(LookupError, match="no token"):
        await again.token()
    assert again.extensions() == {}
    assert not tokens.asked
