"""Collects the state of a consumer: health, running handlers, records that delay a revocation.

:mod:`.probe` decides whether that state is live and ready. How long calls of handlers run is
sampled: a call itself costs nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.model import BlockingRecord, RunningHandler, Value
from asyncrevoke.client.runtime.hooks.observers import ConsumerSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.runtime.hooks.observers import PartitionStatus
    from asyncrevoke.client.runtime.hooks.transactions import TransactionHook
    from asyncrevoke.client.runtime.session.record_owners import RecordOwners

# Seconds that a handler has to end after it was cancelled at its max_handler_time.
HANDLER_GRACE = 5.0


class RunningCall(Value, frozen=True):
    """A call that has not ended; ``item`` is its record or batch."""

    item: object
    attempt: int
    handler: str
    topic: str
    partition: int
    offset: int
    max_handler_time: float | None


class RunningCalls:
    """Remembers when a call was first sampled; it may be older by the time between two samples."""

    def __init__(self) -> None:
        # Items are kept alive, so that a new one cannot have the identity of one that has ended.
        self._since: dict[tuple[object, int], float] = {}

    def update(self, now: float, running: Iterable[RunningCall]) -> list[RunningHandler]:
        """The calls that run at ``now`` with their seconds, the longest first."""
        before, self._since = self._since, {}
        found: list[RunningHandler] = []
        for call in running:
            key = call.item, call.attempt
            since = self._since[key] = before.get(key, now)
            found.append(
                RunningHandler(
                    call.handler,
                    call.topic,
                    call.partition,
                    call.offset,
                    now - since,
                    call.max_handler_time,
                )
            )
        found.sort(key=lambda one: -one.seconds)
        return found


class SessionStatus:
    """Asks the core and the owners of records; belongs to the event loop's thread. ``partitions``
    returns the status of each assigned partition."""

    def __init__(
        self,
        core: DrivenCore,
        owners: RecordOwners,
        transactions: TransactionHook,
        partitions: Callable[[], tuple[PartitionStatus, ...]],
    ) -> None:
        self._core = core
        self._partitions = partitions
        self._transactions = transactions
        self._owners = owners
        self._loop = asyncio.get_running_loop()
        self._running = RunningCalls()

    def blocking(self) -> tuple[BlockingRecord, ...]:
        """For each partition whose revocation is delayed: the record, and the handler that has
        it."""
        return tuple(
            record._replace(handler=self._owners.name_of(record))
            for record in self._core.blocking_records(self._loop.time())
        )

    def running(self) -> tuple[RunningHandler, ...]:
        """The calls of handlers that have not ended, the longest first."""
        return tuple(
            self._running.update(
                self._loop.time(), [call for owner in self._owners for call in owner.running()]
            )
        )

    def snapshot(self) -> ConsumerSnapshot:
        """Health and partitions at this moment."""
        now, writer = self._loop.time(), self._transactions.writer
        health = self._core.health(now)._replace(
            blocking_records=self.blocking(),
            failure_pauses=tuple(
                pause for owner in self._owners for pause in owner.failure_pauses()
            ),
            unwritten=tuple(held for owner in self._owners for held in owner.unwritten()),
            outages=tuple(outage for owner in self._owners for outage in owner.outages()),
            running=self.running(),
            transactions=None if writer is None else writer.progress(),
        )
        return ConsumerSnapshot(now, health, self._partitions())
