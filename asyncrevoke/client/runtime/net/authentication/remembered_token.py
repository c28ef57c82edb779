"""Shares OAUTHBEARER tokens with the heartbeat thread.

The application's token provider runs on its own event loop only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.client.runtime.net.authentication.oauthbearer import extensions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.abc import AbstractTokenProvider


class RememberedToken:
    """Asks the application's provider, and remembers its responses for :meth:`repeated`."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider
        self._repeated = _RepeatedToken()

    async def token(self) -> str:
        """A token of the provider's."""
        token = cast("str", await self._provider.token())
        self._repeated.newest = token
        return token

    def extensions(self) -> Mapping[str, str]:
        """The provider's extensions, if it has any."""
        self._repeated.newest_extensions = dict(extensions_of(self._provider))
        return self._repeated.newest_extensions

    def provider(self) -> AbstractTokenProvider:
        """This one, by the type that options have."""
        return cast("AbstractTokenProvider", self)

    def repeated(self) -> AbstractTokenProvider:
        """A provider for any thread, which gives the newest responses again."""
        return cast("AbstractTokenProvider", self._repeated)


class _RepeatedToken:
    def __init__(self) -> None:
        self.newest: str | None = None
        self.newest_extensions: Mapping[str, str] = {}

    async def token(self) -> str:
        if self.newest is None:
            raise LookupError("no token has been asked for yet")
        return self.newest

    def extensions(self) -> Mapping[str, str]:
        return self.newest_extensions
