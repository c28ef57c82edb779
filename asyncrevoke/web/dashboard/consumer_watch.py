"""Fills a history from a consumer in this process, which reports revocations immediately."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.model import (
    BlockingRecord,
    Health,
    PollResult,
    Record,
    RunningHandler,
    TopicPartition,
)
from asyncrevoke.client.printable import counted
from asyncrevoke.client.runtime.hooks.observers import (
    ConsumerSnapshot,
    EndedTransaction,
    HandledItem,
    Observed,
    Observer,
)
from asyncrevoke.web.dashboard.history import (
    HandlerCalls,
    HandlerFigures,
    History,
    Pending,
    Place,
    Sample,
    State,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision

_NOTES = {
    log_events.ASSIGNED.name: "assigned {count}",
    log_events.JOINING.name: "joining the group",
    log_events.REVOCATION_REQUESTED.name: "revocation requested: {names}",
    log_events.REVOCATION_WITHDRAWN.name: "revocation withdrawn: {names}",
    log_events.RELEASED.name: "released {names}{after}",
    log_events.PARTITIONS_LOST.name: "lost {names}: {reason}",
    log_events.MEMBERSHIP_LOST.name: "membership lost: {reason}",
    log_events.LEFT_GROUP.name: "left the group",
    log_events.SHARE_LOCKS_LOST.name: "locks of records lost: {reason}",
    log_events.SHARE_MEMBER_JOINS_AGAIN.name: "removed from the group; joining again: {reason}",
}
_MOST_NAMES = 6
# Seconds.
_LONG_TRANSACTION = 10.0


class ConsumerWatch(Observer):
    """An observer that fills a history. With ``dead_letter_values``, the history also gets the
    contents of dead letters."""

    def __init__(self, history: History, *, dead_letter_values: bool = False) -> None:
        self._history = history
        self._dead_letter_values = dead_letter_values
        self._consumer: Observed | None = None
        self._name = ""
        self._records = 0
        self._dead_letters = 0
        self._held: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._requested: dict[TopicPartition, float] = {}
        # The oldest offset in flight, and the time since which it has been the oldest.
        self._oldest: dict[TopicPartition, tuple[int, float]] = {}
        self._read_due = False
        self._calls: dict[str, HandlerCalls] = {}

    def on_open(self, consumer: Observed) -> None:
        """Add the consumer to the history."""
        self._consumer = consumer
        self._name = self._history.join(consumer.client_id)
        self._history.note(self._name, "consumer opened")

    def on_close(self) -> None:
        """Remove the consumer: its partitions have no owner."""
        self._consumer = None
        self._history.forget(self._name)
        self._calls.clear()
        for partition in self._held:
            self._history.leave(partition, self._name, lost=partition in self._lost)
        self._held.clear()
        self._history.note(self._name, "consumer closed")

    def on_poll(self, batch: PollResult) -> None:
        """Count records. Read the states of partitions if the batch announces revocations."""
        self._records += sum(map(len, batch.by_partition().values()))
        if batch.to_be_revoked:
            self._read_soon()

    def on_handlers_completed(
        self,
        handler: str,
        topic: str,  # noqa: ARG002
        seconds: Sequence[float],
    ) -> None:
        """Count the calls of each handler."""
        self._calls_of(handler).completed(seconds)

    def on_handler_error(
        self,
        handler: str,
        what: HandledItem,  # noqa: ARG002
        seconds: float,  # noqa: ARG002
        error: BaseException,
    ) -> None:
        """Count the errors of each handler."""
        self._calls_of(handler).failed(error)

    def on_failure_decision(
        self,
        handler: str,  # noqa: ARG002
        record: Record,
        decision: FailureDecision,
    ) -> None:
        """Count dead letters."""
        if decision == "dead_lettered":
            self._dead_letters += 1
            where = f"{record.topic_partition} at {record.offset}"
            self._history.note(self._name, f"dead letter: {where}")

    def on_dead_letter(self, record: Record, topic: str, error: BaseException) -> None:
        """Count dead letters by topic, origin and error."""
        self._history.count_dead_letter(topic, record.topic, type(error).__name__)
        if self._dead_letter_values:
            self._history.keep_dead_letter(self._name, topic, record, error)

    def on_results_published(self, handler: str, topic: str, count: int) -> None:
        """Count results by topic and handler."""
        self._history.count_results(topic, handler, count)

    def on_transaction(self, transaction: EndedTransaction) -> None:
        """Count transactions, and add a note about each one that was aborted."""
        outcome = transaction.outcome.replace("_", " ")
        self._history.count_transaction(outcome)
        if transaction.outcome != "committed":
            records = counted(transaction.records, "record")
            self._history.note(self._name, f"transaction aborted ({outcome}): {records}")

    def on_event(self, event: str, fields: Mapping[str, object]) -> None:
        """Add a note about the event, and read the states of partitions."""
        note = _NOTES.get(event)
        if note is None:
            return
        names = _names(fields)
        if event == log_events.PARTITIONS_LOST.name:
            self._lost.update(map(_partition, names))
        shown = ", ".join(names[:_MOST_NAMES])
        if len(names) > _MOST_NAMES:
            shown += f" and {len(names) - _MOST_NAMES} more"
        seconds = fields.get("seconds")
        self._history.note(
            self._name,
            note.format(
                names=shown,
                count=counted(len(names), "partition"),
                reason=fields.get("reason", ""),
                after=f" after {seconds:.2f} s" if isinstance(seconds, float) else "",
            ),
        )
        self._read_soon()

    def on_tick(self, late: float) -> None:
        """Read the figures of this second."""
        if self._consumer is None:
            return
        snapshot = self._consumer.snapshot()
        self._read(snapshot)
        if late > 1:
            self._history.note(self._name, f"the event loop was blocked for {late:.1f} s")
        self._history.places[self._name] = tuple(
            Place(s.partition, self._name, s.in_flight, s.oldest, s.committed, s.lag)
            for s in snapshot.partitions
        )
        self._history.handlers[self._name] = self._handlers(snapshot)
        self._history.unavailable[self._name] = tuple(_unavailable(snapshot.health))
        share, counts = snapshot.health.share, self._consumer.share
        lag = sum(status.lag or 0 for status in snapshot.partitions)
        if share is not None and counts is not None:
            self._history.is_share = True
            ended = Counter[str]()
            for (kind, outcome), records in counts.acknowledgements.items():
                ended[kind if outcome == "acknowledged" else outcome] += records
            self._history.acquired[self._name] = share, dict(ended)
        self._history.sample(
            self._name,
            Sample(
                self._history.clock(),
                self._records,
                snapshot.health.in_flight,
                lag,
                self._dead_letters,
                self._oldest_age(snapshot),
                snapshot.health.state,
            ),
        )

    def _read_soon(self) -> None:
        """Read states in the next event loop iteration, after the current change is complete."""
        if not self._read_due:
            self._read_due = True
            asyncio.get_running_loop().call_soon(self._read_now)

    def _read_now(self) -> None:
        self._read_due = False
        if self._consumer is not None:
            self._read(self._consumer.snapshot())

    def _read(self, snapshot: ConsumerSnapshot) -> None:
        history, now = self._history, self._history.clock()
        blocking = {record.topic_partition: record for record in snapshot.health.blocking_records}
        held: set[TopicPartition] = set()
        pending: list[Pending] = []
        for status in snapshot.partitions:
            partition, state = status.partition, cast("State", status.revoking or "held")
            held.add(partition)
            history.hold(partition, self._name, state)
            if state != "held":
                since = self._requested.setdefault(partition, now)
                waits_for = _waits_for(blocking.get(partition))
                pending.append(Pending(partition, self._name, state, since, waits_for))
            else:
                self._requested.pop(partition, None)
        for partition in self._held - held:
            history.leave(partition, self._name, lost=partition in self._lost)
            self._requested.pop(partition, None)
        self._held = held
        self._lost.clear()
        if history.pending.get(self._name, ()) != tuple(pending):
            history.pending[self._name] = tuple(pending)
            history.changed()

    def _calls_of(self, handler: str) -> HandlerCalls:
        if handler not in self._calls:
            self._calls[handler] = HandlerCalls(self._history.clock())
        return self._calls[handler]

    def _handlers(self, snapshot: ConsumerSnapshot) -> tuple[HandlerFigures, ...]:
        now = self._history.clock()
        running: defaultdict[str, list[RunningHandler]] = defaultdict(list)
        for call in snapshot.health.running:
            running[call.handler].append(call)
        return tuple(
            self._calls_of(handler).figures(now, self._name, handler, running[handler])
            for handler in sorted({*self._calls, *running})
        )

    def _oldest_age(self, snapshot: ConsumerSnapshot) -> float:
        now = self._history.clock()
        oldest: dict[TopicPartition, tuple[int, float]] = {}
        for status in snapshot.partitions:
            if status.oldest is not None:
                before, since = self._oldest.get(status.partition, (None, now))
                oldest[status.partition] = status.oldest, since if before == status.oldest else now
        self._oldest = oldest
        return max((now - since for _, since in oldest.values()), default=0.0)


def _unavailable(health: Health) -> Iterator[Unavailable]:
    for topic in sorted(health.missing_topics):
        yield Unavailable(topic, "the topic does not exist")
    for topic in sorted(health.rejected_topics):
        yield Unavailable(topic, "the brokers reject requests for the topic")
    for broker in health.unreachable_brokers:
        yield Unavailable(broker, "the broker does not respond")
    for held in health.unwritten:
        records = counted(held.records, "failed record")
        yield Unavailable(held.to_topic, f"{records} cannot be written to it: {held.reason}")
    for outage in health.outages:
        kind = outage.reason.partition(":")[0]
        reason = f"the registry has not responded for {outage.seconds:.0f} s: {kind}"
        yield Unavailable(outage.name, reason)
    for broker, seconds in health.throttled_brokers.items():
        yield Unavailable(broker, f"a quota throttles this consumer for {seconds:.0f} s more")
    if (waits := health.transactions) is not None and (waits.seconds or 0) > _LONG_TRANSACTION:
        records = counted(waits.records, "finished record")
        reason = f"none was committed for {waits.seconds:.0f} s: {records} wait"
        yield Unavailable("transactions", reason)
    failed = {
        TopicPartition(failure_pause.topic, failure_pause.partition): failure_pause
        for failure_pause in health.failure_pauses
    }
    for partition in sorted(health.paused_partitions | failed.keys()):
        if (pause := failed.get(partition)) is None:
            yield Unavailable(str(partition), "the partition is paused")
            continue
        # The message of an error may quote a record.
        kind, attempts = pause.error.partition(":")[0], counted(pause.attempts, "attempt")
        until = f"{pause.handler} succeeds with offset {pause.offset}"
        if pause.probe_after == math.inf:
            until = f"resume(): {pause.handler} has failed with offset {pause.offset}"
        yield Unavailable(str(partition), f"paused until {until}: {kind}, {attempts}")


def _waits_for(record: BlockingRecord | None) -> str:
    if record is None:
        return ""
    handler = "" if record.handler is None else f" in {record.handler.rpartition('.')[2]}"
    more = record.unfinished - 1
    return f"offset {record.offset}{handler}" + (f" and {more} more" if more else "")


def _names(fields: Mapping[str, object]) -> list[str]:
    if "topic" in fields:  # of a share group: beside the number of a partition
        return []
    names = fields.get("partitions", fields.get("partition", []))
    return [names] if isinstance(names, str) else cast("list[str]", names)


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
