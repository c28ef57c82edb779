"""Records the calls of handlers of a consumer under test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from asyncrevoke.client.model import Record
from asyncrevoke.client.runtime.hooks.recorders import FailureDecision
from asyncrevoke.handlers.dead_letters.retry_message import retry_history
from asyncrevoke.handlers.policy.batch import BatchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Outcome: TypeAlias = Literal["running", "ok", "failed", "cancelled", "mixed"] | FailureDecision


class Call:
    """One call of a handler: its name, its records, and its outcome.

    ``attempt`` counts the calls for the record from 1. ``error`` is the exception of the call.
    ``records`` are those of a batch in offset order, or only ``record``.
    """

    __slots__ = ("_outcomes", "attempt", "error", "function", "handler", "records")

    def __init__(
        self, handler: str, function: object, records: Sequence[Record], attempt: int
    ) -> None:
        self.handler = handler
        self.function = function
        self.records = tuple(records)
        self.attempt = attempt
        self.error: BaseException | None = None
        self._outcomes: dict[Record, Outcome] = dict.fromkeys(self.records, "running")

    @property
    def record(self) -> Record:
        """The record, or the first one of a batch."""
        return self.records[0]

    @property
    def outcome(self) -> Outcome:
        """The outcome; ``"mixed"`` for a batch whose records have different outcomes.

        ``"running"``, ``"ok"``, ``"cancelled"`` (its partition was lost, or the consumer ended), or
        the decision about the failed call: ``"retried"`` (another attempt follows),
        ``"sent_to_retry_topic"``, ``"dead_lettered"``, ``"skipped"``, ``"paused"`` (its partition),
        ``"stopped"`` (the consumer), ``"abandoned"`` (its partition was being revoked; the next
        owner processes the record). ``"failed"`` if there was no decision, for example because
        middleware has handled the error.
        """
        first, *others = set(self._outcomes.values())
        return "mixed" if others else first

    def outcome_of(self, record: Record) -> Outcome:
        """The outcome of one record of a batch."""
        return self._outcomes[record]

    def __repr__(self) -> str:
        first, more = self.record, len(self.records) - 1
        what = f"{first.topic_partition} at offset {first.offset}"
        batch = f" and {more} more" if more else ""
        return f"<{self.handler}: {what}{batch}, attempt {self.attempt}: {self.outcome}>"

    def set_outcome(self, outcome: Outcome, *records: Record) -> None:
        """Set the outcome of these records, or of all records of the call."""
        self._outcomes.update(dict.fromkeys(records or self.records, outcome))


class NotHandled(NamedTuple):
    """A record without a call, because it matches no handler or its value does not decode.

    ``outcome`` is the decision about it: ``"dead_lettered"``, ``"skipped"``, ``"paused"`` (its
    partition), ``"stopped"`` (the consumer), or ``"abandoned"`` (its partition was being revoked).
    ``error`` has the reason.
    """

    record: Record
    outcome: FailureDecision
    error: BaseException


class Calls:
    """All calls in the order of their start, and the records without a call."""

    def __init__(self) -> None:
        self.made: list[Call] = []
        self.not_handled: list[NotHandled] = []
        self._last: dict[Record, Call] = {}
        # Records of retry topics in the form that handlers get, by their original topic, partition
        # and offset. failure_decided() gets the form that was read.
        self._from_retry_topics: dict[tuple[str, int, int], Record] = {}

    async def call(
        self,
        name: str,
        function: object,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
        /,
    ) -> None:
        """Call a handler, and record the call."""
        awaitable = call()  # raises without a call if a value does not decode
        made = Call(name, function, records, attempt)
        self.made.append(made)
        self._last.update(dict.fromkeys(made.records, made))
        self._from_retry_topics.update(
            {_identity(record): record for record in made.records if record.tracker_id == -1}
        )
        try:
            await awaitable
        except asyncio.CancelledError as error:
            made.error = error
            made.set_outcome("cancelled")
            raise
        except BatchError as error:
            made.error = error
            failed = [record for n, record in enumerate(made.records) if n in error.errors]
            made.set_outcome("ok" if len(failed) == len(error.errors) else "failed")
            made.set_outcome("failed", *failed)
            raise
        except BaseException as error:
            made.error = error
            made.set_outcome("failed")
            raise
        made.set_outcome("ok")

    def first_call(self, _call: object, /) -> None:
        """Does nothing, because all calls are recorded in the same way."""

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException, /
    ) -> None:
        """Set the decision about a record whose call has failed, or that has no call."""
        if record not in self._last and (history := retry_history(record)) is not None:
            record = self._from_retry_topics.pop(_identity(history.record), record)
        made = self._last.get(record)
        if made is None:
            self.not_handled.append(NotHandled(record, decision, error))
        elif made.outcome_of(record) != "ok":
            made.set_outcome(decision, record)


def _identity(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
