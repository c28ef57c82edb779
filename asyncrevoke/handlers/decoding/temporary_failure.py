"""Tells a decoder that could not ask its schema registry from a value that does not decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.printable import is_caught_by

if TYPE_CHECKING:
    from collections.abc import Iterator

# By the names of their classes, because these packages may not be installed: errors of a
# connection that are no OSError.
_OF_CONNECTIONS: Final = frozenset(
    ("httpx.TransportError", "aiohttp.ClientConnectionError", "urllib3.HTTPError")
)
# Attributes of errors that have an HTTP status.
_STATUSES: Final = ("http_status_code", "status_code", "status", "code")
_TOO_MANY_REQUESTS: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERRORS: Final = range(500, 600)
_HTTP: Final = range(100, 600)
# An error that causes itself has no end.
_MOST_CAUSES: Final = 8


def is_temporary(error: BaseException) -> bool:
    """Whether the same decoder may decode the same value later.

    True for an OSError (ConnectionError and TimeoutError are ones), an error of a connection of
    httpx, aiohttp or urllib3, and an HTTP status of 408, 429 or 5xx; also if such an error is the
    cause. False for any other HTTP status.
    """
    return any(map(_is_temporary, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield cause
        context = None if cause.__suppress_context__ else cause.__context__
        cause = context if cause.__cause__ is None else cause.__cause__


def _is_temporary(error: BaseException) -> bool:
    try:
        status, is_of_connection = _status(error), _is_of_connection(error)
    except BaseException:  # noqa: BLE001 - a class of the user may raise when it is asked
        status, is_of_connection = None, False
    if status is not None:
        return status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS) or status in _SERVER_ERRORS
    return is_of_connection or is_caught_by(error, OSError)


def _is_of_connection(error: BaseException) -> bool:
    return any(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in _OF_CONNECTIONS
        for kind in type(error).__mro__
    )


def _status(error: BaseException) -> int | None:
    for source in (error, getattr(error, "response", None)):
        for name in _STATUSES:
            status = cast("object", getattr(source, name, None))
            if isinstance(status, int) and status in _HTTP:
                return int(status)
    return None
