"""Decides how a share group acknowledges a record that has failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.execution.failure_policy import FailurePolicy
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.record_source import RecordLocks


class LockLostError(Exception):
    """The lock of a record has passed before its handler was called: another member may have
    it."""


class AcknowledgementPolicy:
    """Applies ``on_error`` of a share group: release (the default) or reject. What it does not
    apply to is acknowledged by nobody here: no record is accepted because it has failed."""

    def __init__(self, locks: RecordLocks, failures: FailurePolicy) -> None:
        self._locks = locks
        self._failures = failures

    def give_up(self, record: Record, handler: Handler, error: BaseException) -> bool:
        """Release the record later, or reject it; False, without effect, if ``on_error`` stops."""
        if handler.on_error == "reject":
            self._failures.warn(log_events.RECORD_REJECTED, record, handler, error)
            self._failures.report("rejected", record, handler, error)
            self._locks.reject(record)
        elif handler.on_error in (None, "release"):
            self._release_later(record, handler, error)
        else:
            return False
        return True

    def _release_later(self, record: Record, handler: Handler, error: BaseException) -> None:
        """Hold the record for ``release_delay``, so that an outage does not use up its deliveries
        within milliseconds."""
        is_last = self._locks.is_last_delivery(record)
        self._failures.warn(
            log_events.RECORD_ON_LAST_DELIVERY if is_last else log_events.RECORD_RELEASED_LATER,
            record,
            handler,
            error,
            deliveries=record.delivery_count,
            seconds=handler.release_delay,
        )
        self._failures.report("released", record, handler, error)
        self._locks.wait((record,), handler.release_delay)
