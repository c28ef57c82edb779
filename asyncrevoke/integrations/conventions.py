"""Names of metrics and attributes, by OpenTelemetry's conventions for messaging (1.45).

Names that the conventions do not have begin with ``asyncrevoke.``.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"

SYSTEM: Final = "messaging.system.name"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
BATCH_SIZE: Final = "messaging.batch.message_count"
BODY_SIZE: Final = "messaging.message.body.size"
OFFSET: Final = "kafka.offset"
KEY: Final = "kafka.message.key"
TOMBSTONE: Final = "kafka.message.tombstone"
ERROR: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"
# Not in the conventions.
HANDLER: Final = "asyncrevoke.handler"
ATTEMPT: Final = "asyncrevoke.attempt"
DECISION: Final = "asyncrevoke.decision"
OUTCOME: Final = "asyncrevoke.outcome"
RESULTS: Final = "asyncrevoke.results"
STATE: Final = "asyncrevoke.state"
TYPE: Final = "asyncrevoke.type"
REASON: Final = "asyncrevoke.reason"

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric: its unit in UCUM, and its attributes besides those of the consumer."""

    name: str
    kind: Kind
    unit: str
    about: str
    attributes: tuple[str, ...] = ()


CONSUMED: Final = Metric(
    "messaging.client.consumed.messages",
    "counter",
    "{message}",
    "Records that were delivered to handlers or to the loop.",
    (OPERATION, TOPIC, PARTITION),
)
SENT: Final = Metric(
    "messaging.client.sent.messages",
    "counter",
    "{message}",
    "Results and published records that brokers have acknowledged.",
    (OPERATION, TOPIC, HANDLER),
)
PUBLISH_FAILURES: Final = Metric(
    "asyncrevoke.publish.failures",
    "counter",
    "{record}",
    "Records that code outside of handlers has published and that were not acknowledged.",
    (TOPIC, ERROR),
)
QUEUED: Final = Metric(
    "asyncrevoke.producer.queued",
    "gauge",
    "{record}",
    "Records of a producer that are neither acknowledged nor have failed.",
)
QUEUED_SIZE: Final = Metric(
    "asyncrevoke.producer.queued.size", "gauge", "By", "Size of these records."
)
QUEUED_OLDEST: Final = Metric(
    "asyncrevoke.producer.queued.oldest",
    "gauge",
    "s",
    "How long the first of these records has been queued; 0 without one.",
)
PROCESS: Final = Metric(
    "messaging.process.duration",
    "histogram",
    "s",
    "Duration of each call of a handler or a task; each attempt counts.",
    (OPERATION, TOPIC, HANDLER, ERROR),
)
COMMIT: Final = Metric(
    "messaging.client.operation.duration",
    "histogram",
    "s",
    "Duration of commits, from the request to the acknowledgement.",
    (OPERATION, OPERATION_TYPE),
)
FAILURES: Final = Metric(
    "asyncrevoke.failures",
    "counter",
    "{record}",
    "What became of records whose handler failed.",
    (TOPIC, HANDLER, DECISION),
)
IN_FLIGHT: Final = Metric(
    "asyncrevoke.in_flight",
    "gauge",
    "{record}",
    "Records delivered and not done.",
    (TOPIC, PARTITION),
)
CALLS_IN_FLIGHT: Final = Metric(
    "asyncrevoke.calls.in_flight",
    "gauge",
    "{call}",
    "Calls of a handler that have not ended.",
    (TOPIC, HANDLER),
)
UNWRITTEN: Final = Metric(
    "asyncrevoke.unwritten",
    "gauge",
    "{record}",
    "Failed records that are held until this topic takes them.",
    (TOPIC,),
)
LAG: Final = Metric(
    "asyncrevoke.lag",
    "gauge",
    "{record}",
    "Offsets between the position and the high watermark, or with read_committed the last stable "
    "offset, as of the last fetch.",
    (TOPIC, PARTITION),
)
ASSIGNED: Final = Metric(
    "asyncrevoke.partitions.assigned",
    "gauge",
    "{partition}",
    "Partitions that this member owns, including those being revoked.",
)
DELAYED: Final = Metric(
    "asyncrevoke.partitions.revoking",
    "gauge",
    "{partition}",
    "Partitions whose revocation was requested and that are not released yet.",
)
OVERDUE: Final = Metric(
    "asyncrevoke.revocation.pending",
    "gauge",
    "s",
    "How long the oldest pending revocation has waited for a record.",
)
REVOCATIONS: Final = Metric(
    "asyncrevoke.revocations",
    "counter",
    "{partition}",
    "Partitions whose revocation was requested or withdrawn, or that were released or lost.",
    (OUTCOME,),
)
DRAIN: Final = Metric(
    "asyncrevoke.revocation.duration",
    "histogram",
    "s",
    "Time from the request of a revocation to the release, with running handlers and final commit.",
)
TRANSACTIONS: Final = Metric(
    "asyncrevoke.transactions",
    "counter",
    "{transaction}",
    "Transactions that were committed or aborted.",
    (OUTCOME,),
)
TRANSACTION_RECORDS: Final = Metric(
    "asyncrevoke.transaction.records",
    "histogram",
    "{record}",
    "Records in each committed transaction.",
)
TRANSACTION_RESULTS: Final = Metric(
    "asyncrevoke.transaction.results",
    "histogram",
    "{result}",
    "Results in each committed transaction.",
)
FINISHED: Final = Metric(
    "asyncrevoke.transaction.waiting",
    "gauge",
    "{record}",
    "Finished records that are in no committed transaction.",
)
FINISHED_SIZE: Final = Metric(
    "asyncrevoke.transaction.waiting.size",
    "gauge",
    "By",
    "Size of the results of the finished records that are in no committed transaction.",
)
UNCOMMITTED: Final = Metric(
    "asyncrevoke.transaction.pending",
    "gauge",
    "s",
    "Time since the first transaction began after the last committed one; 0 without one.",
)
SHARE_HELD: Final = Metric(
    "asyncrevoke.share.held_records",
    "gauge",
    "{record}",
    "Records of a share group that are locked for this member.",
    (STATE,),
)
SHARE_ACKNOWLEDGEMENTS: Final = Metric(
    "asyncrevoke.share.acknowledgements",
    "counter",
    "{record}",
    "Records of a share group that were acknowledged.",
    (TYPE, OUTCOME),
)
SHARE_RENEWALS: Final = Metric(
    "asyncrevoke.share.renewals", "counter", "{record}", "Locks of records that were renewed."
)
SHARE_LOCKS_LOST: Final = Metric(
    "asyncrevoke.share.locks_lost",
    "counter",
    "{record}",
    "Locks that were lost: the records are delivered again, to any member.",
    (REASON,),
)
SHARE_DELIVERIES: Final = Metric(
    "asyncrevoke.share.delivery_count",
    "histogram",
    "{delivery}",
    "How often each delivered record of a share group was delivered, this time included.",
)
SHARE_OPENS: Final = Metric(
    "asyncrevoke.share.session_opens",
    "counter",
    "{session}",
    "Share sessions that were opened with a broker.",
)
SHARE_BYTES: Final = Metric(
    "asyncrevoke.share.received_per_record",
    "gauge",
    "By",
    "Bytes of record batches that were received for each acquired record.",
)
SHARE_LAG: Final = Metric(
    "asyncrevoke.share.lag",
    "gauge",
    "{record}",
    "Records that the share group has neither acknowledged nor archived, as each member knows it; "
    "none before the first acknowledgement.",
)
REBALANCES: Final = Metric(
    "asyncrevoke.rebalances", "counter", "{rebalance}", "Assignments that this member has received."
)
STALLS: Final = Metric(
    "asyncrevoke.stalls",
    "counter",
    "{stall}",
    "Warnings that delivery waits because max_in_flight is reached.",
)
THROTTLE: Final = Metric(
    "asyncrevoke.throttle.duration",
    "histogram",
    "s",
    "Throttle times that brokers have returned because a quota is exceeded (KIP-219).",
)
LOOP_LAG: Final = Metric(
    "asyncrevoke.event_loop.lag",
    "histogram",
    "s",
    "Delay of the event loop, measured once a second.",
)

METRICS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of the above, in this order."""

# Bounds in seconds: those of the conventions for durations, and bounds for drains, which may take
# minutes.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
DRAIN_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
DELIVERY_BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
COUNT_BUCKETS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)


def buckets_of(metric: Metric) -> tuple[float, ...]:
    """The upper bounds of a histogram's buckets."""
    if metric is SHARE_DELIVERIES:
        return DELIVERY_BUCKETS
    if metric.unit != "s":
        return COUNT_BUCKETS
    return DRAIN_BUCKETS if metric is DRAIN else BUCKETS


def error_type(error: BaseException) -> str:
    """``error.type`` of an exception: its qualified name."""
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
