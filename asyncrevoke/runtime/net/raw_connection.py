"""A connection as aiokafka opens it, and what of it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokafka.abc import AbstractTokenProvider

from asyncrevoke.config.security import security_options
from asyncrevoke.runtime.net.authentication.credentials_filter import keep_credentials_out_of_logs
from asyncrevoke.runtime.net.fatal_errors import NoTokenError
from asyncrevoke.runtime.net.limited_connection import LimitedConnection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.effects import Node
    from asyncrevoke.runtime.net.limited_connection import AuthenticatedSession

__all__ = ["RawConnection", "raw_connection", "versions_of"]

# aiokafka has one timeout per request, ours is for all that opening takes.
_NEVER_MS: Final = 2**31 - 1


class RawConnection(Protocol):
    """What we use of aiokafka's connection."""

    @property
    def session(self) -> AuthenticatedSession | None:
        """When it has to be authenticated again; None: never."""
        ...

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open it, and ask for the versions."""
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


class _Told(Exception):  # noqa: N818 - it is no error
    """Which versions of each request the broker offers."""

    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(versions)
        self.versions = versions


class _Question:
    """To be sent, a request is told the versions first; this one goes no further."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> object:
        raise _Told(versions)


class _TokenProvider:
    """Tells failures of the application's provider from a refusal by the broker."""

    def __init__(self, inner: AbstractTokenProvider) -> None:
        self._inner = inner

    async def token(self) -> str:
        try:
            return cast("str", await self._inner.token())
        except Exception as error:
            raise NoTokenError(f"the token provider failed: {error!r}") from error

    def extensions(self) -> dict[str, str]:
        return cast("dict[str, str]", self._inner.extensions())


AbstractTokenProvider.register(_TokenProvider)  # aiokafka asks for an instance


def versions_of(raw: RawConnection) -> Mapping[int, tuple[int, int]]:
    """Which versions of each request the broker offers, by the keys of the requests."""
    try:
        raw.send(_Question())
    except _Told as told:
        return told.versions
    raise AssertionError("aiokafka sent what it should not have prepared")


def raw_connection(node: Node, config: ConsumerConfig) -> RawConnection:
    """A connection of aiokafka's that is not open yet."""
    keep_credentials_out_of_logs()
    security = security_options(config)
    if config.sasl_oauth_token_provider is not None:
        security["sasl_oauth_token_provider"] = _TokenProvider(config.sasl_oauth_token_provider)
    connection = LimitedConnection(
        node.host,
        node.port,
        client_id=config.client_id,
        request_timeout_ms=_NEVER_MS,
        scram_max_iterations=config.sasl_scram_max_iterations,
        **security,
    )
    return cast("RawConnection", connection)
