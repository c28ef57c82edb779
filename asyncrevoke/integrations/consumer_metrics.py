"""The metrics of one consumer or producer, independent of an exporter.

Counting costs a few operations per poll, or per turn of the event loop. Lag and records in flight
are read from the consumer only when an exporter reads the metrics.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.share.counts import ShareCounts
from asyncrevoke.client.errors import ConsumerClosedError
from asyncrevoke.client.runtime.hooks.observers import (
    EndedTransaction,
    HandledItem,
    Observed,
    ObservedProducer,
    Observer,
)
from asyncrevoke.integrations import conventions as names

if TYPE_CHECKING:
    from asyncrevoke.client.model import PollResult, Record, ShareHealth, TopicPartition
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision


class Distribution(NamedTuple):
    """The state of a histogram: the count of each bucket, the last without a bound, and the sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Counts values. A bucket has the values up to its bound, and above the bound before."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def add_all(self, values: Sequence[float]) -> None:
        """Count many values, fast if all are in the first bucket."""
        self._total += sum(values)
        if max(values) <= self._bounds[0]:
            self._counts[0] += len(values)
            return
        values = sorted(values)
        start = 0
        for number, bound in enumerate(self._bounds):
            end = bisect_right(values, bound, start)
            self._counts[number] += end - start
            start = end
        self._counts[-1] += len(values) - start

    def read(self) -> Distribution:
        """The counts so far, in any thread."""
        return Distribution(self._bounds, tuple(self._counts), self._total)


Attributes: TypeAlias = dict[str, str]
Value: TypeAlias = float | Distribution
Reading: TypeAlias = tuple[names.Metric, Sequence[tuple[Attributes, Value]]]


class ConsumerMetrics(Observer):
    """Counts events, and reads all metrics at once. The counts survive the consumer."""

    def __init__(self) -> None:
        self._consumer: Observed | None = None
        self._producer: ObservedProducer | None = None
        self._is_of_producer = False
        self._of_consumer: Attributes = {}
        self._consumed: Counter[TopicPartition] = Counter()
        # By handler, topic and type of error, which is empty for calls that returned.
        self._process: defaultdict[tuple[str, str, str], Histogram] = defaultdict(
            lambda: Histogram(names.BUCKETS)
        )
        self._commits = Histogram(names.BUCKETS)
        # By handler, topic and decision.
        self._failures: Counter[tuple[str, str, str]] = Counter()
        # By handler and topic.
        self._results: Counter[tuple[str, str]] = Counter()
        # By topic and type of error.
        self._unpublished: Counter[tuple[str, str]] = Counter()
        # The handlers and topics of calls that were in flight when somebody asked.
        self._called: dict[tuple[str, str], None] = {}
        # The topics to which records could not be written when somebody asked.
        self._not_written: dict[str, None] = {}
        self._revocations: Counter[str] = Counter()
        # By outcome.
        self._transactions: Counter[str] = Counter()
        self._records = Histogram(names.COUNT_BUCKETS)
        self._results_of_transactions = Histogram(names.COUNT_BUCKETS)
        self._drains = Histogram(names.DRAIN_BUCKETS)
        # In a share group: the counts of the present session, and of those before.
        self._share: ShareCounts | None = None
        self._share_before = ShareCounts()
        self._deliveries = Histogram(names.DELIVERY_BUCKETS)
        self._rebalances = 0
        self._stalls = 0
        self._throttles = Histogram(names.DRAIN_BUCKETS)
        self._loop_lag = Histogram(names.BUCKETS)

    def is_of_same_consumer(self, other: ConsumerMetrics) -> bool:
        """Whether both are the metrics of one entered consumer or producer."""
        seen = self._consumer or self._producer
        return self is other or (seen is not None and seen is (other._consumer or other._producer))

    # --- hooks -----------------------------------------------------------------------------------

    def on_open(self, consumer: Observed) -> None:
        """Read gauges from this consumer from now on."""
        self._consumer = consumer
        if self._share is not None:
            self._share_before.add(self._share)
        self._share = consumer.share
        self._of_consumer = {
            names.SYSTEM: "kafka",
            names.GROUP: consumer.group_id or "",
            names.CLIENT_ID: consumer.client_id,
        }

    def on_producer_open(self, producer: ObservedProducer) -> None:
        """Read gauges from this producer from now on."""
        self._producer = producer
        self._is_of_producer = True
        self._of_consumer = {names.SYSTEM: "kafka", names.CLIENT_ID: producer.client_id}

    def on_close(self) -> None:
        """Stop reading gauges."""
        self._consumer = self._producer = None

    def on_poll(self, batch: PollResult) -> None:
        """Count delivered records."""
        for partition, records in batch.by_partition().items():
            self._consumed[partition] += len(records)
            if self._share is not None:
                self.delivered([record.delivery_count or 1 for record in records])

    def delivered(self, counts: Sequence[int]) -> None:
        """Records of a share group were delivered for these times."""
        self._deliveries.add_all(counts)

    def on_handlers_completed(self, handler: str, topic: str, seconds: Sequence[float]) -> None:
        """Count calls that have returned."""
        self._process[handler, topic, ""].add_all(seconds)

    def on_handler_error(
        self, handler: str, what: HandledItem, seconds: float, error: BaseException
    ) -> None:
        """Count a call that has raised."""
        self.failed(handler, what.topic, names.error_type(error), seconds)

    def failed(self, handler: str, topic: str, error: str, seconds: float) -> None:
        """A call has raised an error of type ``error``."""
        self._process[handler, topic, error].add(seconds)

    def on_failure_decision(self, handler: str, record: Record, decision: FailureDecision) -> None:
        """Count decisions about failed records."""
        self._failures[handler, record.topic, decision] += 1

    def on_results_published(self, handler: str, topic: str, count: int) -> None:
        """Count acknowledged results."""
        self._results[handler, topic] += count

    def on_publish_failed(self, topic: str, count: int, error: Exception) -> None:
        """Count records that were not acknowledged."""
        self._unpublished[topic, names.error_type(error)] += count

    def on_transaction(self, transaction: EndedTransaction) -> None:
        """Count a transaction."""
        self._transactions[transaction.outcome] += 1
        if transaction.outcome == "committed":
            self.transaction_committed(transaction.records, transaction.results)

    def transaction_committed(self, records: int, results: int) -> None:
        """A transaction of so many records and results was committed."""
        self._records.add(records)
        self._results_of_transactions.add(results)

    def on_event(self, event: str, fields: Mapping[str, object]) -> None:
        """Count commits, rebalances and revocations."""
        match event:
            case log_events.COMMITTED.name:
                self.committed(_seconds(fields))
            case log_events.ASSIGNED.name:
                self._rebalances += 1
            case log_events.REVOCATION_REQUESTED.name:
                self._revocations["requested"] += _count(fields)
            case log_events.RELEASED.name:
                self._revocations["released"] += 1
                if fields.get("seconds") is not None:
                    self.drained(_seconds(fields))
            case log_events.REVOCATION_WITHDRAWN.name:
                self._revocations["withdrawn"] += 1
            case log_events.PARTITIONS_LOST.name:
                self._revocations["lost"] += _count(fields)
            case log_events.THROTTLED.name:
                self.throttled(_seconds(fields))
            case log_events.MAX_IN_FLIGHT_REACHED.name:
                self._stalls += 1
            case _:
                pass

    def committed(self, seconds: float) -> None:
        """A commit was acknowledged."""
        self._commits.add(seconds)

    def drained(self, seconds: float) -> None:
        """A partition was released ``seconds`` after its revocation was requested."""
        self._drains.add(seconds)

    def throttled(self, seconds: float) -> None:
        """A broker has returned this throttle time."""
        self._throttles.add(seconds)

    def on_tick(self, late: float) -> None:
        """Count by how many seconds the event loop was late."""
        self._loop_lag.add(max(0.0, late))

    # --- reading ---------------------------------------------------------------------------------

    def read(self) -> list[Reading]:
        """Read all metrics, in any thread. Gauges are left out if the event loop is blocked for a
        second, or has ended."""
        return [*self.counters(), *self.gauges()]

    def counters(self) -> Iterator[Reading]:
        """The counters and histograms."""
        yield from self._published()
        if self._is_of_producer:
            return
        polled = {names.OPERATION: "poll"}
        consumed = [(self.of(polled, *tp), count) for tp, count in list(self._consumed.items())]
        yield names.CONSUMED, consumed
        calls = [
            (self.of_calls(handler, topic) | {names.ERROR: error}, h.read())
            for (handler, topic, error), h in list(self._process.items())
        ]
        yield names.PROCESS, calls
        yield names.COMMIT, [(self.of_commits(), self._commits.read())]
        failures = [
            (self.of({names.DECISION: decision, names.HANDLER: handler}, topic), count)
            for (handler, topic, decision), count in list(self._failures.items())
        ]
        yield names.FAILURES, failures
        revocations = [
            (self.of({names.OUTCOME: outcome}), count)
            for outcome, count in list(self._revocations.items())
        ]
        yield names.REVOCATIONS, revocations
        yield names.DRAIN, [(self.of({}), self._drains.read())]
        transactions = [
            (self.of({names.OUTCOME: outcome}), count)
            for outcome, count in list(self._transactions.items())
        ]
        if transactions:
            yield names.TRANSACTIONS, transactions
            yield names.TRANSACTION_RECORDS, [(self.of({}), self._records.read())]
            yield names.TRANSACTION_RESULTS, [(self.of({}), self._results_of_transactions.read())]
        if self._share is not None:
            yield from self._of_share_group(self._share)
        yield names.REBALANCES, [(self.of({}), self._rebalances)]
        yield names.STALLS, [(self.of({}), self._stalls)]
        yield names.THROTTLE, [(self.of({}), self._throttles.read())]
        yield names.LOOP_LAG, [(self.of({}), self._loop_lag.read())]

    def _published(self) -> Iterator[Reading]:
        sent = [
            (self.of({names.OPERATION: "send", names.HANDLER: handler}, topic), count)
            for (handler, topic), count in list(self._results.items())
        ]
        if sent:
            yield names.SENT, sent
        failed = [
            (self.of({names.ERROR: error}, topic), count)
            for (topic, error), count in list(self._unpublished.items())
        ]
        if failed:
            yield names.PUBLISH_FAILURES, failed

    def _producer_gauges(self, producer: ObservedProducer) -> list[Reading]:
        try:
            health = producer.snapshot()
        except (TimeoutError, ConsumerClosedError):
            return []
        of = self.of({})
        return [
            (names.QUEUED, [(of, health.queued_records)]),
            (names.QUEUED_SIZE, [(of, health.queued_bytes)]),
            (names.QUEUED_OLDEST, [(of, health.oldest_seconds or 0.0)]),
        ]

    def _of_share_group(self, present: ShareCounts) -> Iterator[Reading]:
        counts = ShareCounts()
        counts.add(self._share_before)
        counts.add(present)
        acknowledged = [
            (self.of({names.TYPE: kind, names.OUTCOME: outcome}), records)
            for (kind, outcome), records in counts.acknowledgements.items()
        ]
        yield names.SHARE_ACKNOWLEDGEMENTS, acknowledged
        yield names.SHARE_RENEWALS, [(self.of({}), counts.renewals)]
        lost = [(self.of({names.REASON: loss}), n) for loss, n in counts.locks_lost.items()]
        yield names.SHARE_LOCKS_LOST, lost
        yield names.SHARE_DELIVERIES, [(self.of({}), self._deliveries.read())]
        yield names.SHARE_OPENS, [(self.of({}), counts.session_opens)]

    def _share_gauges(self, health: ShareHealth | None) -> list[Reading]:
        if health is None or self._share is None:
            return []
        held = {"unstarted": health.unstarted, "running": health.running, "waiting": health.waiting}
        readings: list[Reading] = [
            (names.SHARE_HELD, [(self.of({names.STATE: s}), n) for s, n in held.items()])
        ]
        if self._share.acquired:
            per_record = self._share.bytes_received / self._share.acquired
            readings.append((names.SHARE_BYTES, [(self.of({}), per_record)]))
        if health.lag is not None:
            readings.append((names.SHARE_LAG, [(self.of({}), health.lag)]))
        return readings

    def gauges(self) -> list[Reading]:
        """The gauges, read from the consumer or producer; empty if its event loop does not
        respond."""
        if self._producer is not None:
            return self._producer_gauges(self._producer)
        if self._consumer is None:
            return []
        try:
            snapshot = self._consumer.snapshot()
        except TimeoutError:
            return []
        every = [(self.of({}, *s.partition), s) for s in snapshot.partitions]
        running = Counter((call.handler, call.topic) for call in snapshot.health.running)
        self._called.update(dict.fromkeys(running))
        calls = [
            (self.of({names.HANDLER: handler}, topic), running[handler, topic])
            for handler, topic in list(self._called)
        ]
        held: Counter[str] = Counter()
        for unwritten in snapshot.health.unwritten:
            held[unwritten.to_topic] += unwritten.records
        self._not_written.update(dict.fromkeys(held))
        pending = max((record.seconds for record in snapshot.health.blocking_records), default=0.0)
        waits = snapshot.health.transactions
        transactions: list[Reading] = []
        if waits is not None:
            transactions = [
                (names.FINISHED, [(self.of({}), waits.records)]),
                (names.FINISHED_SIZE, [(self.of({}), waits.size)]),
                (names.UNCOMMITTED, [(self.of({}), waits.seconds or 0.0)]),
            ]
        return [
            (names.IN_FLIGHT, [(of, s.in_flight) for of, s in every]),
            (names.CALLS_IN_FLIGHT, calls),
            (names.UNWRITTEN, [(self.of({}, topic), held[topic]) for topic in self._not_written]),
            (names.LAG, [(of, s.lag) for of, s in every if s.lag is not None]),
            (names.ASSIGNED, [(self.of({}), snapshot.health.assigned)]),
            (names.DELAYED, [(self.of({}), snapshot.health.revoking)]),
            (names.OVERDUE, [(self.of({}), pending)]),
            *transactions,
            *self._share_gauges(snapshot.health.share),
        ]

    def of_calls(self, handler: str, topic: str) -> Attributes:
        """The attributes of a handler's calls."""
        return self.of({names.OPERATION: "process", names.HANDLER: handler}, topic)

    def of_commits(self) -> Attributes:
        """The attributes of commits."""
        return self.of({names.OPERATION: "commit", names.OPERATION_TYPE: "settle"})

    def of(
        self, more: Attributes, topic: str | None = None, partition: int | None = None
    ) -> Attributes:
        """The attributes of the consumer, ``more``, and those of a topic and a partition."""
        attributes = self._of_consumer | more
        if topic is not None:
            attributes[names.TOPIC] = topic
        if partition is not None:
            attributes[names.PARTITION] = str(partition)
        return attributes


def _seconds(fields: Mapping[str, object]) -> float:
    seconds = fields["seconds"]
    assert isinstance(seconds, float)
    return seconds


def _count(fields: Mapping[str, object]) -> int:
    partitions = fields["partitions"]
    assert isinstance(partitions, list)
    return len(cast("list[object]", partitions))
