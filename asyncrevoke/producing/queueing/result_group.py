"""Results that are queued together, for less work on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.producing.queueing.result_topic import ResultTopic
    from asyncrevoke.producing.record_batch import Adder, ResultBatch, ResultSink

    # A token, the key, the value and the headers. A plain tuple costs a quarter of a class.
    GroupedResult: TypeAlias = tuple[
        object, bytes | None, bytes | None, list[tuple[str, bytes | None]]
    ]

# Together they bound what is not counted as memory yet.
GROUP_RESULTS: Final = 512
GROUP_VALUE_BYTES: Final = 4096
# For a key whose partition is unknown.
_UNKNOWN: Final = -1
# Of a partition without a batch: it appends nothing.
_NO_ADDER: Final[Adder] = (lambda *_: None, lambda: 0, lambda _: None)


class ResultGroup:
    """Results for one topic, without a partition of their own, in the order in which they are sent.

    :meth:`Producer.begin_group` is called before the first of ``results``, when they are
    ``GROUP_RESULTS``, and after one whose value has more than ``GROUP_VALUE_BYTES``. ``sink`` is
    told what has become of them.
    """

    __slots__ = ("results", "sink", "topic")

    def __init__(self, topic: str, sink: ResultSink) -> None:
        self.topic = topic
        self.sink = sink
        self.results: list[GroupedResult] = []

    def fail(self, error: Exception) -> None:
        """They are not queued."""
        failed = [result[0] for result in self.results]
        self.results.clear()
        if failed:
            self.sink.results_failed(failed, error)


class GroupAppender:
    """Appends the results of one group to the open batches of a topic."""

    def __init__(self, topic: ResultTopic, sink: ResultSink) -> None:
        self._topic = topic
        self._sink = sink
        # By partition; the last one is that of _UNKNOWN.
        self._adders: list[Adder] = [_NO_ADDER] * (len(topic.queues) + 1)
        self._batches: dict[int, ResultBatch] = {}
        self._bytes = 0

    def append(
        self, results: list[GroupedResult], timestamp: int
    ) -> Iterator[tuple[int, GroupedResult]]:
        """Append them; yields those that begin a batch of their partition, or are the first ones
        for it in this group. Whoever gets one appends it, and calls :meth:`use`."""
        topic, adders = self._topic, self._adders
        partition_of = topic.partitioner.places(len(topic.queues)).get
        for result in results:
            token, key, value, headers = result
            append, next_number, take = adders[partition_of(key, _UNKNOWN)]
            if append(next_number(), timestamp, key, value, headers) is None:
                partition = topic.partition_of(key)
                self._end(partition)
                yield partition, result
            else:
                take(token)

    def use(self, partition: int, batch: ResultBatch) -> None:
        """Append what follows for this partition to this batch, which is open."""
        self._batches[partition] = batch
        self._adders[partition] = batch.adder(self._sink)

    def end(self) -> int:
        """Count what was appended; returns its bytes. Nothing is appended after it."""
        for partition in list(self._batches):
            self._end(partition)
        return self._bytes

    def _end(self, partition: int) -> None:
        batch = self._batches.pop(partition, None)
        if batch is not None:
            self._adders[partition] = _NO_ADDER
            self._bytes += batch.added()
