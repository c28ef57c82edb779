"""The options ``retry`` and ``on_error=Pause()``: calls after a failure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.errors import ConfigError, DecodeError, UnreadableRecordError
from asyncrevoke.client.printable import is_caught_by, shown_option

if TYPE_CHECKING:
    from collections.abc import Callable

RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...]

# 0.5 s doubled 60 times exceeds any max_backoff; a float overflows at about 1000.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Call a handler again when it raises.

    ``attempts`` is the number of calls, including the first; None: without limit. The wait before
    the second call is ``backoff`` seconds, and twice as long before each further call, at most
    ``max_backoff``. Each wait varies by up to the fraction ``jitter`` either way, so that records
    that failed together are not retried together. ``retry_on`` is a type of exception, or a tuple
    of types; after an exception that ``except`` with these types would not catch, or a value that
    does not decode, the handler is not called again. An exception of a ``decoder`` is retried if it
    is temporary (``DecodeError.temporary``) and ``retry_on`` names its type.

    Hazard of None, and of long waits: the lane of a waiting record waits too, and no commit of its
    partition passes the record. Raises ConfigError.
    """

    attempts: int | None = 3
    backoff: float = 0.5
    max_backoff: float = 30.0
    jitter: float = 0.1
    retry_on: RetryOn = Exception

    def __post_init__(self) -> None:
        self._check_attempts()
        _check_seconds("backoff", self.backoff)
        _check_seconds("max_backoff", self.max_backoff)
        if self.max_backoff < self.backoff:
            raise ConfigError(
                f"Retry(max_backoff={self.max_backoff}) is less than backoff={self.backoff}: use "
                f"max_backoff={self.backoff} to wait as long each time"
            )
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigError(
                f"Retry(jitter={shown_option(self.jitter)}) is the fraction by which a wait "
                "varies, from 0 to 1"
            )
        self._check_retry_on()

    def _check_attempts(self) -> None:
        attempts = cast("object", self.attempts)
        if attempts is None:
            return
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            raise ConfigError(
                f"Retry(attempts={shown_option(attempts)}) is a whole number, the first call "
                "included, or None for ever"
            )
        if attempts < 1:
            raise ConfigError(
                f"Retry(attempts={attempts}): the first call counts, so use at least 1, or None "
                "for ever"
            )

    def _check_retry_on(self) -> None:
        retry_on = cast("object", self.retry_on)
        types = cast("tuple[object, ...]", retry_on if isinstance(retry_on, tuple) else (retry_on,))
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ConfigError(
                    "Retry(retry_on=...) takes types of Exception, one or a tuple, not "
                    f"{shown_option(kind)}"  # pyright: ignore[reportUnknownArgumentType]
                )
        if not types:
            raise ConfigError("Retry(retry_on=()) would try nothing again: leave out retry=")

    def allows(self, error: BaseException, calls: int) -> bool:
        """Whether another call follows; ``error`` is that of the last of ``calls`` calls."""
        return self.names(error) and (self.attempts is None or calls < self.attempts)

    def names(self, error: BaseException) -> bool:
        """Whether another call may succeed after this error, and ``retry_on`` names it."""
        if isinstance(error, UnreadableRecordError):
            return False
        if isinstance(error, DecodeError):
            if not error.temporary:
                return False
            error = error if error.original is None else error.original
        return is_caught_by(error, self.retry_on)

    def delay(self, calls: int, random: Callable[[], float]) -> float:
        """Seconds to wait after ``calls`` calls; ``random`` returns a number from 0 to 1."""
        doubled = math.ldexp(self.backoff, min(calls - 1, _MOST_DOUBLINGS))
        return min(doubled, self.max_backoff) * (1 + self.jitter * (2 * random() - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Pause the partition of a failed record until the handler succeeds: ``on_error=Pause()``.

    For handlers that depend on a service which may be down. The record is retried every
    ``probe_after`` seconds; until it succeeds, no other record of its partition is delivered or
    started. Raises ConfigError.
    """

    probe_after: float = 30.0

    def __post_init__(self) -> None:
        if not _is_number(self.probe_after) or self.probe_after <= 0:
            raise ConfigError(
                f"Pause(probe_after={shown_option(self.probe_after)}) is in seconds, "
                "a number of more than 0"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_seconds(name: str, value: object) -> None:
    if not _is_number(value) or cast("float", value) < 0:
        raise ConfigError(
            f"Retry({name}={shown_option(value)}) is in seconds, a number of at least 0"
        )
