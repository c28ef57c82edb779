"""The limits of one handler, within the limits of its consumer for all handlers together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

from asyncrevoke.client.config import checks
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

# Seconds; half of the shortest lock that brokers allow by default is longer.
_SOON = 5.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Let at most ``calls`` calls of a handler begin within any ``per`` seconds, retries included.

    Calls may begin in a burst: ``RateLimit(10, per=0.1)`` spreads the calls that ``RateLimit(100)``
    allows at once. For a batch handler, one batch is one call. The limit applies to one handler of
    one consumer; members of a group do not share it. Raises ConfigError.
    """

    calls: int
    per: float = 1.0

    def __post_init__(self) -> None:
        checks.count()("RateLimit(calls=...)", self.calls)
        checks.seconds()("RateLimit(per=...)", self.per)


class HandlerLimits(NamedTuple):
    """Calls at once, calls within a time, and records in flight; None: the consumer's limit."""

    concurrency: int | None = None
    rate: RateLimit | None = None
    max_in_flight: int | None = None

    @property
    def delay_calls(self) -> bool:
        """Whether a call may have to wait although a worker is idle."""
        return self.concurrency is not None or self.rate is not None

    @property
    def begin_soon(self) -> int | None:
        """The calls that the rate lets begin within its time, or within 5 s of a longer one; at
        least one, and None without a rate. Locks of records that wait for so long need not be
        renewed."""
        if self.rate is None:
            return None
        return max(1, int(self.rate.calls * min(1.0, _SOON / self.rate.per)))


def check_limits(concurrency: object, rate_limit: object, max_in_flight: object) -> HandlerLimits:
    """Return the limits; ConfigError, with the fix, for a wrong value."""
    if rate_limit is not None and not isinstance(rate_limit, RateLimit):
        raise ConfigError(
            f"rate_limit={shown_option(rate_limit)}: use rate_limit=RateLimit(100, per=1.0)"
        )
    count = checks.optional(checks.count())
    return HandlerLimits(
        cast("int | None", count("concurrency", concurrency)),
        rate_limit,
        cast("int | None", count("max_in_flight", max_in_flight)),
    )
