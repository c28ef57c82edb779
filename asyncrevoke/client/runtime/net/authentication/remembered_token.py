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
    """Asks the application's provider, and remembers its responses for :meth:`again`."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider
        self._token: str | None = None
        self._extensions: Mapping[str, str] = {}

    async def token(self) -> str:
        """A token of the provider's."""
        token = cast("str", await self._provider.token())
        self._token = token
        return token

    def extensions(self) -> dict[str, str]:
        """The provider's extensions, if it has any."""
        self._extensions = extensions_of(self._provider)
        return dict(self._extensions)

    def provider(self) -> AbstractTokenProvider:
        """This one, by the type that options have."""
        return cast("AbstractTokenProvider", self)

    def repeated(self) -> AbstractTokenProvider:
        """A provider for any thread, which gives the newest responses again."""
        return cast("AbstractTokenProvider", _RepeatedToken(self))

    @property
    def newest(self) -> str:
        """The newest token; raises LookupError if there is none."""
        if self._token is None:
            raise LookupError("no token has been asked for yet")
        return self._token

    @property
    def newest_extensions(self) -> dict[str, str]:
        """The extensions that went with it."""
        return dict(self._extensions)


class _RepeatedToken:
    def __init__(self, remembered: RememberedToken) -> None:
        self._remembered = remembered

    async def token(self) -> str:
        return self._remembered.newest

    def extensions(self) -> dict[str, str]:
        return self._remembered.newest_extensions
