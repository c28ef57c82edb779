"""Partitions whose topic the coordinator does not know when they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.outbox import Outbox
    from asyncrevoke.core.partition import PartitionInstance

_TIMER = "commit-unknown-topic"
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 2.0


class UnknownTopics:
    """Each has a backoff of its own, which holds no other partition up.

    The coordinator has not heard of the topic yet, or it is gone: then the metadata will say so.
    """

    def __init__(self, outbox: Outbox, on_due: Callable[[float], None]) -> None:
        self._outbox = outbox
        self._on_due = on_due
        # The last backoff, and when it is over.
        self._waits: dict[PartitionInstance, tuple[float, float]] = {}

    def add(self, now: float, instance: PartitionInstance) -> None:
        """A commit of it was refused."""
        last, _ = self._waits.get(instance, (_FIRST_BACKOFF / 2, now))
        backoff = min(2 * last, _LONGEST_BACKOFF)
        self._waits[instance] = backoff, now + backoff
        self._arm(now)

    def _arm(self, now: float) -> None:
        ahead = [until for _, until in self._waits.values() if until > now]
        if ahead:
            due = min(ahead)
            self._outbox.set_timer(_TIMER, due, self._over, spread=(due - now) / 2)

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
