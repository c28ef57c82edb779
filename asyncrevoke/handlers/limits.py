"""What bounds one handler, beside what bounds them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from asyncrevoke.config import checks
from asyncrevoke.errors import ConfigError
from asyncrevoke.handlers.rate_limit import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.registry import Handler, Router


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


def check_limits_of(handler: Handler, concurrency: int, max_in_flight: int) -> None:
    """ConfigError if a handler's limits do not fit those of its consumer."""
    limits = handler.limits
    for name, own, ours in (
        ("concurrency", limits.concurrency, concurrency),
        ("max_in_flight", limits.max_in_flight, max_in_flight),
    ):
        if own is not None and own > ours:
            raise ConfigError(
                f"{handler.name} has {name}={own}, and the consumer's {name}={ours} bounds all "
                f"handlers together: raise that, or lower the handler's"
            )
    most = limits.max_in_flight or max_in_flight
    if handler.batch is not None and handler.batch.max_records > most:
        raise ConfigError(
            f"{handler.name} has max_records={handler.batch.max_records}, and "
            f"max_in_flight={most} are all that is ever taken: "
            "raise max_in_flight, or lower max_records"
        )


def in_flight_limits(
    router: Router, max_in_flight: int
) -> Callable[[str], tuple[str, int] | None] | None:
    """For each topic, what its handler is known by and how many of its records may be in flight.

    A handler whose calls have to wait gets no more than its equal share unless it says so itself:
    what waits for it would fill ``max_in_flight``, and keep records from the others. None if no
    handler has a limit.
    """
    share = max(1, max_in_flight // len(router.handlers)) if router.handlers else max_in_flight
    limits: dict[int, tuple[str, int]] = {}
    for number, handler in enumerate(router.handlers):
        most = handler.limits.max_in_flight
        if most is None and handler.limits.needs_gate:
            most = max(share, 1 if handler.batch is None else handler.batch.max_records)
        if most is not None and most < max_in_flight:
            limits[id(handler)] = f"{number}: {handler.name}", most
    if not limits:
        return None

    def limit_of(topic: str) -> tuple[str, int] | None:
        handler = router.get(topic)
        return None if handler is None else limits.get(id(handler))

    return limit_of
