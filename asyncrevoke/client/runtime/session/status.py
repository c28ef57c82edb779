"""Collects the state of a consumer: health, running handlers, records that delay a revocation.

:mod:`.probe` decides whether that state is live and ready.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.core.partition.status import partition_statuses
from asyncrevoke.client.runtime.hooks.observer import ConsumerSnapshot
from asyncrevoke.client.runtime.hooks.running_calls import RunningCalls

if TYPE_CHECKING:
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.model import (
        BlockingRecord,
        FailurePause,
        RunningHandler,
        UnwrittenRecords,
    )
    from asyncrevoke.client.runtime.session.record_owners import RecordOwners


class SessionStatus:
    """Asks the core and the owners of records; belongs to the event loop's thread."""

    def __init__(self, core: Core, owners: RecordOwners) -> None:
        self._core = core
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
        return tuple(self._running.update(self._loop.time(), list(self._owners.running())))

    def failure_pauses(self) -> tuple[FailurePause, ...]:
        """Why partitions are paused until failed records succeed."""
        return tuple(self._owners.failure_pauses())

    def unwritten(self) -> tuple[UnwrittenRecords, ...]:
        """The failed records that are held until another topic takes them."""
        return tuple(self._owners.unwritten())

    def snapshot(self) -> ConsumerSnapshot:
        """Health and partitions at this moment."""
        now = self._loop.time()
        health = self._core.health(now)._replace(
            blocking_records=self.blocking(),
            failure_pauses=self.failure_pauses(),
            unwritten=self.unwritten(),
            running=self.running(),
        )
        return ConsumerSnapshot(now, health, partition_statuses(self._core.assignment))
