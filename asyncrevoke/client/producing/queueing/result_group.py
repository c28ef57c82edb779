"""Results that are queued together, which costs less time for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from asyncrevoke.client.producing.record_batch import Adder, ResultBatch, ResultSink
from asyncrevoke.client.producing.trace_context import trace_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopic

    # Token, key, value and headers.
    QueuedResult: TypeAlias = tuple[
        object, bytes | None, bytes | None, list[tuple[str, bytes | None]]
    ]

# Together they limit the memory of results that are not counted yet.
GROUP_RESULTS: Final = 512
GROUP_VALUE_BYTES: Final = 4096
# For a key whose partition is unknown.
_UNKNOWN: Final = -1
# For a partition without a batch: appends no record.
_NO_ADDER: Final[Adder] = (lambda *_: None, lambda: 0, lambda _: None)
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


class ResultGroup:
    """Results of records for one topic, in the order of sending.

    ``values`` has the value of the result of each of ``records``, whose key and trace context it
    has. The caller adds to both. It calls :meth:`RecordProducer.begin_group` before the first
    result, when there are ``GROUP_RESULTS``, and after a value with more than
    ``GROUP_VALUE_BYTES``.
    ``sink`` receives acknowledgements and errors, with the records as tokens.
    """

    __slots__ = ("records", "sink", "topic", "values")

    def __init__(self, topic: str, sink: ResultSink) -> None:
        self.topic = topic
        self.sink = sink
        self.records: list[Record] = []
        self.values: list[bytes | None] = []

    def clear(self) -> None:
        """Remove all results, because they are queued or have failed."""
        self.records.clear()
        self.values.clear()

    def fail(self, error: Exception) -> None:
        """Fail the results that are not queued."""
        failed = self.records.copy()
        self.clear()
        if failed:
            self.sink.results_failed(failed, error)


class _Adders(dict[int, Adder]):
    """The adders of partitions; a partition without a batch, and ``_UNKNOWN``, has _NO_ADDER."""

    def __missing__(self, _partition: int) -> Adder:
        return _NO_ADDER


class GroupAppender:
    """Appends the results of one group to the open batches of a topic."""

    def __init__(self, topic: ResultTopic, sink: ResultSink) -> None:
        self._topic = topic
        self._sink = sink
        self._adders = _Adders()
        self._batches: dict[int, ResultBatch] = {}
        self._bytes = 0

    def append(self, group: ResultGroup, timestamp: int) -> Iterator[tuple[int, QueuedResult]]:
        """Append results to the batches of :meth:`use`, and yield each other result.

        Such a result is the first for its partition in this group, or its batch is full. The caller
        appends it, and calls :meth:`use` with its batch.
        """
        topic, adders = self._topic, self._adders
        partition_of = topic.partitioner.cached(topic.count).get
        for record, value in zip(group.records, group.values, strict=True):
            key = record.key
            headers = trace_headers(record) if record.headers else _NO_HEADERS
            append, next_number, take = adders[partition_of(key, _UNKNOWN)]
            if append(next_number(), timestamp, key, value, headers) is None:
                # The key is new, the batch is full, or the partition has none.
                partition = topic.partition_of(key)
                append, next_number, take = adders[partition]
                if append(next_number(), timestamp, key, value, headers) is None:
                    self._end(partition)
                    yield partition, (record, key, value, headers)
                    continue
            take(record)

    def use(self, partition: int, batch: ResultBatch) -> None:
        """Append further results for this partition to this open batch."""
        self._batches[partition] = batch
        self._adders[partition] = batch.adder(self._sink)

    def end(self) -> int:
        """End the group, and return the bytes of its appended results."""
        for partition in list(self._batches):
            self._end(partition)
        return self._bytes

    def _end(self, partition: int) -> None:
        batch = self._batches.pop(partition, None)
        if batch is not None:
            del self._adders[partition]
            self._bytes += batch.added()
