"""The context that is passed to a handler's call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from asyncrevoke.client.producing.encoding import encode_key, encode_value
from asyncrevoke.client.producing.exactly_once.known_topics import wait_for_topic
from asyncrevoke.client.producing.message import SAME_KEY, Headers, PublishedRecord, SameKey
from asyncrevoke.client.producing.trace_context import result_headers, trace_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.exactly_once.finished_records import CallResults
    from asyncrevoke.client.producing.record_producer import RecordProducer

StateT = TypeVar("StateT", default=object)
WorkerT = TypeVar("WorkerT", default=object)
PartitionT = TypeVar("PartitionT", default=object)


class BoundLog:
    """The logger that handlers write to: adds the same fields to each line."""

    __slots__ = ("_fields", "_log")

    def __init__(self, log: Log, /, **fields: object) -> None:
        self._log = log
        self._fields = fields

    def bind(self, **fields: object) -> BoundLog:
        """Return a log that adds these fields, too."""
        return BoundLog(self._log, **{**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """Log details for finding a fault."""
        self._log.write("debug", event, {**self._fields, **fields})

    def info(self, event: str, /, **fields: object) -> None:
        """Log what an operator may want to know."""
        self._log.write("info", event, {**self._fields, **fields})

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what an operator should look at; ``exc_info`` takes an exception."""
        self._log.write("warning", event, {**self._fields, **fields})

    def error(self, event: str, /, **fields: object) -> None:
        """Log what needs an operator; ``exc_info`` takes an exception."""
        self._log.write("error", event, {**self._fields, **fields})


class HandlerContext(Generic[StateT, WorkerT, PartitionT]):
    """Passed to a parameter annotated ``HandlerContext``; each call has its own.

    ``record`` is the record, or the first one of a batch. ``attempt`` counts the calls for it from
    1; it begins again after a restart or a rebalance, but not for a record of a retry topic.
    ``handler`` is the handler's name in logs: its module and qualified name.

    ``state`` is the object that ``Consumer(resources=...)`` has opened. ``worker_state`` is a
    resource of ``worker_resources``, which no other call uses at the same time.
    ``partition_state`` is the object that the ``partition_lifespan`` of the record's partition has
    yielded. Each is None without its option. ``HandlerContext[Database, Session, Counts]`` gives
    them their types.
    """

    __slots__ = (
        "_log",
        "_open_producer",
        "_records",
        "_results",
        "attempt",
        "handler",
        "partition_state",
        "record",
        "state",
        "worker_state",
    )

    def __init__(
        self,
        record: Record,
        attempt: int,
        state: StateT,
        log: Log,
        handler: str = "",
        records: Sequence[Record] | None = None,
        worker_state: WorkerT = cast("WorkerT", None),  # noqa: B008 - it is None
        partition_state: PartitionT = cast("PartitionT", None),  # noqa: B008 - likewise
        open_producer: Callable[[], RecordProducer] | None = None,
        results: CallResults | None = None,
    ) -> None:
        self.record = record
        self.attempt = attempt
        self.handler = handler
        self.state = state
        self.worker_state = worker_state
        self.partition_state = partition_state
        self._log = log
        self._records = records
        self._open_producer = open_producer
        self._results = results

    @property
    def results(self) -> CallResults | None:
        """Where results go with ``processing="exactly_once"``; for the library."""
        return self._results

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | SameKey | None = SAME_KEY,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write a record, and return when all in-sync replicas have it.

        ``value`` is encoded as a handler's result, see :class:`~asyncrevoke.Message`. By default
        the record has the key of ``record``, and the trace context of the publish span, or without
        a tracer that of ``record``. A replay writes nothing. With ``processing="exactly_once"`` it
        returns at once, and the record is written in the transaction that commits ``record``, if
        the call returns; after the call has ended it raises IllegalStateError. Raises PublishError.
        If cancelled, the record may still be written.
        """
        if self._open_producer is None:
            return
        if self._results is not None:
            self._results.check_open()
        producer = self._open_producer()
        with producer.spans(in_call=True) as spans:
            carried = spans.begin(topic) or trace_headers(self.record)
            result = PublishedRecord(
                topic,
                partition,
                self.record.key if isinstance(key, SameKey) else encode_key(topic, key),
                encode_value(topic, value),
                result_headers(topic, carried, headers),
                timestamp,
            )
            if self._results is not None:
                await wait_for_topic(self._open_producer, topic)
                self._results.check_open()
                self._results.append(result)
                return
            delivery = producer.delivery(self.handler)
            await producer.queue(*result, delivery)
            await delivery.wait()

    @property
    def lock_deadline(self) -> float | None:
        """In a share group: when the lock of the record, or the first one of a batch, passes unless
        it is renewed, as it is at half of its time; in seconds of the event loop's clock. None if
        it has passed (the record may be with another member), and in a consumer group."""
        return None

    @property
    def records(self) -> Sequence[Record]:
        """The records of a batch, in offset order, or the single record."""
        return (self.record,) if self._records is None else self._records

    @property
    def idempotency_key(self) -> tuple[str, int, int]:
        """Topic, partition and offset: the same in each call for this record, in any process.

        Store it with the result, under a unique constraint: a repeated call then changes nothing.
        """
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def log(self) -> BoundLog:
        """The consumer's logger; each line has the partition, the offset and the attempt."""
        record = self.record
        return BoundLog(
            self._log,
            partition=str(record.topic_partition),
            offset=record.offset,
            attempt=self.attempt,
        )


class LockedContext(HandlerContext):
    """The context of a call in a share group. ``deadline_of`` returns the deadline of a lock; None
    if it has passed."""

    __slots__ = ("_deadline_of",)

    def __init__(
        self,
        deadline_of: Callable[[Record], float | None],
        *arguments: Any,  # noqa: ANN401 - those of the base class
        **named: Any,  # noqa: ANN401 - likewise
    ) -> None:
        super().__init__(*arguments, **named)
        self._deadline_of = deadline_of

    @property
    def lock_deadline(self) -> float | None:
        """When the first lock passes unless it is renewed; None if one has passed."""
        deadlines = [self._deadline_of(record) for record in self.records]
        known = [deadline for deadline in deadlines if deadline is not None]
        return min(known) if len(known) == len(deadlines) else None
