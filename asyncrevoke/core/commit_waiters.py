"""Who waits for a commit to be acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.core.effects import Complete
from asyncrevoke.core.partition import PartitionInstance, State
from asyncrevoke.errors import PartitionLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.outbox import Outbox


class Waiter(NamedTuple):
    """``needs``: per instance, the offset (or, if ``by_sequence``, the number of the request) that
    must be acknowledged before ``ticket`` is answered."""

    ticket: int
    needs: dict[PartitionInstance, int]
    by_sequence: bool


class CommitWaiters:
    """Answers each waiting ticket once: when all that it needs is acknowledged, or cannot be."""

    def __init__(
        self, outbox: Outbox, is_satisfied: Callable[[PartitionInstance, int, bool], bool]
    ) -> None:
        self._outbox = outbox
        self._is_satisfied = is_satisfied
        self._waiters: list[Waiter] = []

    def add(self, waiter: Waiter) -> bool:
        """Let it wait; False if it needs nothing and was answered at once."""
        if not waiter.needs:
            self._outbox.put(Complete(waiter.ticket))
            return False
        self._waiters.append(waiter)
        return True

    def check(self) -> None:
        """Answer those that are satisfied, and those that never will be.

        A released partition is satisfied: its final commit was acknowledged.
        """
        still: list[Waiter] = []
        for waiter in self._waiters:
            lost = [i.partition for i in waiter.needs if i.state is State.LOST]
            if lost:
                self._outbox.put(Complete(waiter.ticket, error=PartitionLostError(lost)))
            elif all(
                instance.terminal or self._is_satisfied(instance, needed, waiter.by_sequence)
                for instance, needed in waiter.needs.items()
            ):
                self._outbox.put(Complete(waiter.ticket))
            else:
                still.append(waiter)
        self._waiters = still

    def refuse(self, instance: PartitionInstance, error: Exception) -> None:
        """Whoever needs this instance gets ``error``."""
        still: list[Waiter] = []
        for waiter in self._waiters:
            if instance in waiter.needs:
                self._outbox.put(Complete(waiter.ticket, error=error))
            else:
                still.append(waiter)
        self._waiters = still

    def fail(self, error: Exception) -> None:
        """Everybody gets ``error``: nothing more will be committed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._outbox.put(Complete(waiter.ticket, error=error))
