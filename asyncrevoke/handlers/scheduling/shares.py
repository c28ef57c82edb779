"""What the handlers of a consumer share: calls at once, and records taken and not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.registry import Handler, Router


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
