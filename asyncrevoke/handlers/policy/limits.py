"""What bounds one handler, beside what bounds them all."""

from __future__ import annotations

from typing import NamedTuple, cast

from asyncrevoke.config import checks
from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.policy.rate_limit import RateLimit


class Limits(NamedTuple):
    """Of one handler: calls at once, calls within a time, records taken and not finished."""

    concurrency: int | None = None
    rate: RateLimit | None = None
    max_in_flight: int | None = None

    @property
    def needs_gate(self) -> bool:
        """Whether its calls may have to wait although there are workers."""
        return self.concurrency is not None or self.rate is not None


def check_limits(concurrency: object, rate_limit: object, max_in_flight: object) -> Limits:
    """The limits, or ConfigError with the fix."""
    if rate_limit is not None and not isinstance(rate_limit, RateLimit):
        raise ConfigError(f"rate_limit={rate_limit!r}: use rate_limit=RateLimit(100, per=1.0)")
    count = checks.optional(checks.count())
    return Limits(
        cast("int | None", count("concurrency", concurrency)),
        rate_limit,
        cast("int | None", count("max_in_flight", max_in_flight)),
    )
