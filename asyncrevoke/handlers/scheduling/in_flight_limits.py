"""How many calls of each handler run at once, and how many of its records may be in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.handlers.blocking.run_in import default_calls

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.limits import HandlerLimits
    from asyncrevoke.handlers.policy.registration import Handler, HandlerLookup


def call_limits(lookup: HandlerLookup, handler: Handler) -> HandlerLimits:
    """The limits of a handler's calls.

    A handler without ``concurrency`` that runs in processes or interpreters is limited to one call
    per CPU, unless it shares a topic: a limit would delay the records of the other handlers.
    """
    limits, run_in = handler.limits, handler.run_in
    if run_in is None or limits.concurrency is not None:
        return limits
    if any(lookup.matcher_of(topic) is not None for topic in handler.topics):
        return limits
    return limits._replace(concurrency=default_calls(run_in))


class HandlerInFlightLimits:
    """How many records of each handler may be in flight, by the handler's number and name.

    A handler with limits, but without ``max_in_flight``, gets an equal share of the consumer's:
    otherwise its waiting records would leave no room for those of other handlers.
    """

    def __init__(self, lookup: HandlerLookup, max_in_flight: int) -> None:
        self._lookup = lookup
        self._limits: dict[int, tuple[str, int]] = {}
        handlers = lookup.handlers
        share = max(1, max_in_flight // len(handlers)) if handlers else max_in_flight
        for number, handler in enumerate(handlers):
            most = handler.limits.max_in_flight
            if most is None and call_limits(lookup, handler).delay_calls:
                most = max(share, 1 if handler.batch is None else handler.batch.max_records)
            if most is not None and most < max_in_flight:
                self._limits[id(handler)] = f"{number}: {handler.name}", most

    def __bool__(self) -> bool:
        return bool(self._limits)

    def of_topic(self, topic: str) -> tuple[str, int] | None:
        """The limit of the topic's handler; None if it has none."""
        handler = self._lookup.get(topic)
        return None if handler is None else self._limits.get(id(handler))
