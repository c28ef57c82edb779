"""When a partition is committed again that the coordinator did not accept, each for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.instance import PartitionInstance


class PartitionBackoff:
    """Each partition has a backoff of its own, between ``first`` and ``longest`` seconds, which
    holds no other partition up. ``timer`` names the timer; ``on_due(now)`` is called when one of
    them need not wait any more."""

    def __init__(
        self,
        outbox: Outbox,
        on_due: Callable[[float], None],
        *,
        timer: str,
        first: float,
        longest: float,
    ) -> None:
        self._outbox = outbox
        self._on_due = on_due
        self._timer = timer
        self._first = first
        self._longest = longest
        # The last backoff, and when it is over.
        self._waits: dict[PartitionInstance, tuple[float, float]] = {}

    def add(self, now: float, instance: PartitionInstance) -> None:
        """A commit of it was not accepted."""
        last, _ = self._waits.get(instance, (self._first / 2, now))
        backoff = min(2 * last, self._longest)
        self._waits[instance] = backoff, now + backoff
        self._arm(now)

    def end_wait(self, now: float, instance: PartitionInstance) -> None:
        """It need not wait now; the next backoff is longer all the same."""
        if instance in self._waits:
            self._waits[instance] = self._waits[instance][0], now

    def _arm(self, now: float) -> None:
        ahead = [until for _, until in self._waits.values() if until > now]
        if ahead:
            due = min(ahead)
            self._outbox.set_timer(self._timer, due, self._over, spread=(due - now) / 2)

    def _over(self, now: float) -> None:
        self._arm(now)
        self._on_due(now)

    def has_to_wait(self, now: float, instance: PartitionInstance) -> bool:
        """Whether it is not to be committed yet."""
        _, until = self._waits.get(instance, (0.0, now))
        return until > now

    def forget(self, instance: PartitionInstance) -> None:
        """It was committed, or has ended."""
        self._waits.pop(instance, None)
