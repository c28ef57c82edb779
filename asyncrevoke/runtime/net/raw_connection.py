"""Opens connections by aiokafka."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokafka.abc import AbstractTokenProvider

from asyncrevoke.config.security import security_options
from asyncrevoke.runtime.net.authentication.credentials_filter import keep_credentials_out_of_logs
from asyncrevoke.runtime.net.fatal_errors import NoTokenError
from asyncrevoke.runtime.net.frames import frame_limit
from asyncrevoke.runtime.net.limited_connection import LimitedConnection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.runtime.net.limited_connection import AuthenticatedSession

# aiokafka's timeout is for each request; Connection.open has one for all of them.
_NEVER_MS: Final = 2**31 - 1


class RawConnection(Protocol):
    """aiokafka's connection, as far as it is used. Implemented by :class:`LimitedConnection`."""

    @property
    def session(self) -> AuthenticatedSession | None:
        """When it must be authenticated again (KIP-368); None: never."""
        ...

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open it, look up the versions, and authenticate."""
        ...

    def send(self, request: object) -> object:
        """Send a request of aiokafka's."""
        ...

    def connected(self) -> bool:
        """Whether it is open."""
        ...

    def close(self) -> asyncio.Future[None] | None:
        """Close it."""
        ...


class _OfferedVersions(Exception):  # noqa: N818 - not an error
    """Carries the versions that the broker offers out of aiokafka."""

    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(versions)
        self.versions = versions


class _VersionProbe:
    """A request that is never sent: aiokafka calls ``prepare`` with the broker's versions first."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> object:
        raise _OfferedVersions(versions)


class _TokenProvider:
    """Distinguishes failures of the application's provider from a rejection by the broker."""

    def __init__(self, inner: AbstractTokenProvider) -> None:
        self._inner = inner

    async def token(self) -> str:
        try:
            return cast("str", await self._inner.token())
        except Exception as error:
            raise _no_token(error) from error

    def extensions(self) -> dict[str, str]:
        try:
            return cast("dict[str, str]", getattr(self._inner, "extensions", dict)())
        except Exception as error:
            raise _no_token(error) from error


def _no_token(error: Exception) -> NoTokenError:
    """The message is logged, and the text of the error may quote a secret or a response."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(last.filename).name}:{last.lineno}"
    return NoTokenError(f"the token provider failed: {type(error).__name__} at {place}")


AbstractTokenProvider.register(_TokenProvider)  # aiokafka checks isinstance


def versions_of(raw: RawConnection) -> Mapping[int, tuple[int, int]]:
    """The versions that the broker offers, by API key."""
    try:
        raw.send(_VersionProbe())
    except _OfferedVersions as offered:
        return offered.versions
    raise AssertionError("aiokafka sent a request without preparing it")


def raw_connection(node: Node, config: ConsumerConfig) -> RawConnection:
    """A connection that is not open yet."""
    keep_credentials_out_of_logs()
    security = security_options(config)
    if config.sasl_oauth_token_provider is not None:
        security["sasl_oauth_token_provider"] = _TokenProvider(config.sasl_oauth_token_provider)
    connection = LimitedConnection(
        node.host,
        node.port,
        client_id=config.client_id,
        request_timeout_ms=_NEVER_MS,
        max_response=frame_limit(config.fetch_max_bytes),
        scram_max_iterations=config.sasl_scram_max_iterations,
        **security,
    )
    return cast("RawConnection", connection)
