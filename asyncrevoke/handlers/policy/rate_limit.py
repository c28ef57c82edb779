"""How many calls of a handler may begin within a time."""

from __future__ import annotations

from dataclasses import dataclass

from asyncrevoke.config import checks


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``calls`` calls of a handler begin within any ``per`` seconds, attempts included.

    They may begin in a burst: ``RateLimit(10, per=0.1)`` spreads what ``RateLimit(100)`` allows at
    once. Of a batch handler, a call is a batch. It holds for one handler of one consumer: members
    of the group do not know of each other. Raises ConfigError.
    """

    calls: int
    per: float = 1.0

    def __post_init__(self) -> None:
        checks.count()("RateLimit(calls=...)", self.calls)
        checks.seconds()("RateLimit(per=...)", self.per)
