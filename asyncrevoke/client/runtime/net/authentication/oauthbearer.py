"""OAUTHBEARER according to RFC 7628, with tokens of the application's provider.

The broker responds to a rejected token with a challenge without an error code, and fails the
exchange after a dummy message.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.runtime.net.authentication.errors import (
    AuthenticationRejectedError,
    NoTokenError,
    without_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.abc import AbstractTokenProvider

_DUMMY: Final = b"\x01"
_SEPARATOR: Final = "\x01"


def extensions_of(provider: AbstractTokenProvider) -> Mapping[str, str]:
    """What goes with a token (RFC 7628, section 3.1); nothing if the provider has no such method,
    as for aiokafka."""
    method = getattr(provider, "extensions", None)
    if not callable(method):
        return {}
    return cast("Mapping[str, str]", method())


class BearerExchange:
    """Sends a token, and the dummy message if it is rejected."""

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider
        self._challenge: bytes | None = None
        self.secrets: tuple[str, ...] = ()

    async def step(self, challenge: bytes | None) -> bytes | None:
        """The next message; None when the exchange is over.

        Raises NoTokenError if the provider fails, and AuthenticationRejectedError if the broker
        does not fail the exchange after it has rejected the token.
        """
        if not self.secrets:
            return await self._token()
        if self._challenge is not None:
            reason = self._challenge.decode(errors="replace")
            raise AuthenticationRejectedError(without_secrets(self.secrets, reason))
        if not challenge:
            return None
        self._challenge = challenge
        return _DUMMY

    async def _token(self) -> bytes:
        try:
            token = cast("object", await self._provider.token())
            extensions = dict(extensions_of(self._provider))
        except asyncio.CancelledError as error:
            # The provider may share a task, which was cancelled for another connection.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _no_token(error) from error
        except Exception as error:
            raise _no_token(error) from error
        if not isinstance(token, str) or not token:
            what = "an empty str" if token == "" else f"a {type(token).__name__}, not a str"
            raise NoTokenError(f"the token provider returned {what}")
        self.secrets = (token,)
        fields = (f"auth=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items()))
        return f"n,,{_SEPARATOR}{_SEPARATOR.join(fields)}{2 * _SEPARATOR}".encode()


def _no_token(error: BaseException) -> NoTokenError:
    """The message is logged, and the text of the error may quote a secret or a response."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename.rsplit(os.sep, 1)[-1]}:{last.lineno}"
    return NoTokenError(f"the token provider failed: {type(error).__name__} at {place}")


class RememberedToken:
    """Asks the application's provider, which runs on its own event loop only, and remembers its
    responses for the heartbeat thread, see :meth:`repeated`."""

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
