"""What follows from what the driver reports: one method for each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Emit, Notify, NotifyKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import BlockingRecord, TopicPartition
    from asyncrevoke.client.runtime.session.parts import SessionHooks

# Seconds.
_FIRST = 5.0
_EVERY = 30.0


class RevocationWarnings:
    """Decides when to warn that a record delays a revocation: after 5 s, then every 30 s."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, float] = {}

    def take_due(self, blocking: Iterable[BlockingRecord]) -> list[BlockingRecord]:
        """Those of ``blocking`` (all records that delay a revocation now) to warn of now."""
        known, self._next = self._next, {}
        due: list[BlockingRecord] = []
        for record in blocking:
            at = known.get(record.topic_partition, _FIRST)
            if record.seconds >= at:
                due.append(record)
                at = record.seconds + _EVERY
            self._next[record.topic_partition] = at
        return due


class SessionReactions:
    """The session's :class:`~asyncrevoke.client.runtime.loop.reactions.DriverReactions`."""

    def __init__(self, hooks: SessionHooks) -> None:
        self._hooks = hooks
        self._delayed = RevocationWarnings()

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""
        hooks = self._hooks
        if hooks.observers is not None:
            hooks.observers.on_event(event)
        hooks.log.emit(event)
        if hooks.recorder is not None:
            hooks.recorder.core_reported(event)

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, revoked or lost."""
        if notify.kind is NotifyKind.LOST:
            for owner in self._hooks.owners:
                owner.lose(sorted(notify.partitions))
            if self._hooks.transactions.writer is not None:
                self._hooks.transactions.writer.partitions_lost(notify.partitions)
        if self._hooks.recorder is not None:
            self._hooks.recorder.partitions_changed(notify)

    def transaction_due(self) -> None:
        """A transaction is to be begun."""
        if self._hooks.transactions.writer is not None:
            self._hooks.transactions.writer.transaction_due()

    def ticked(self, late: float) -> None:
        """A second or less has passed."""
        self._hooks.status.running()
        self._warn_of_delayed_revocations()
        if self._hooks.observers is not None:
            self._hooks.reads.report()
            self._hooks.observers.on_tick(late)

    def _warn_of_delayed_revocations(self) -> None:
        due = self._delayed.take_due(self._hooks.status.blocking())
        for record in due:
            by = {} if record.handler is None else {"handler": record.handler}
            log_events.REVOCATION_WAITS_FOR_RECORD.write_to(
                self._hooks.log,
                partition=record.topic_partition,
                offset=record.offset,
                seconds=record.seconds,
                unfinished=record.unfinished,
                **by,
            )
        if due:
            self._hooks.listener.queue_delayed_revocation(due)

    def driver_ended(self) -> None:
        """Nothing more can happen in this session."""
        if self._hooks.observers is not None:
            self._hooks.observers.on_close()
