"""Sends the encoded records of one task, and reports the first row that was not written."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.encoded_records import EncodedRecords
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.spark.errors import SinkError
from asyncrevoke.spark.sink.record_encoding import Numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.client.producing.record_producer import RecordProducer


class EncodedBatch(NamedTuple):
    """A batch for one partition, and the numbers of its rows."""

    partition: TopicPartition
    records: EncodedRecords
    rows: Numbers


class TaskDelivery(Delivery):
    """Waits until all rows are acknowledged or one has failed. ``failure`` names the first row that
    has failed."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self._task = task
        self.failure: SinkError | None = None

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """Remember the first failure."""
        if self.failure is None:
            self.failure = sink_error(self._task, tokens[0], error)
        super().results_failed(tokens, self.failure)


class TopicWriter:
    """The producer of one task; an async context manager. ``task`` names the task in errors.

    Batches that are not acknowledged when the context exits may have been written.
    """

    def __init__(self, config: ConsumerConfig, task: str) -> None:
        self._config = config
        self._task = task
        self._stack = AsyncExitStack()
        self._opened: tuple[RecordProducer, TaskDelivery] | None = None

    async def __aenter__(self) -> Self:
        producer = await self._stack.enter_async_context(ProducerWithOwnConnections(self._config))
        self._opened = producer, TaskDelivery(self._task)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def partitions(self, topic: str, row: int) -> OutputPartitions:
        """The partitions of a topic. ``row`` is the first row for it. Raises SinkError."""
        assert self._opened is not None
        try:
            return await self._opened[0].partitions(topic)
        except PublishError as error:
            raise sink_error(self._task, row, error) from error

    async def queue(self, batches: Sequence[EncodedBatch]) -> None:
        """Queue batches; waits for buffer memory. Raises SinkError, also if an earlier row has
        failed."""
        assert self._opened is not None
        producer, delivery = self._opened
        for partition, records, rows in batches:
            if delivery.failure is not None:
                raise delivery.failure
            try:
                await producer.queue_batch(
                    partition, records, delivery, cast("Sequence[object]", rows)
                )
            except PublishError as error:
                raise sink_error(self._task, rows[0], error) from error

    async def finish(self) -> None:
        """Wait until all rows are acknowledged. Raises SinkError."""
        assert self._opened is not None
        await self._opened[1].wait()


def sink_error(task: str, row: object, error: Exception) -> SinkError:
    """The error for a row that was not written."""
    if not isinstance(error, PublishError):
        return SinkError(f"row {row} of {task} is not written: {error}")
    doubt = "; it may nevertheless have been written" if error.in_doubt else ""
    return SinkError(f"row {row} of {task} is not written to {error.topic}: {error.reason}{doubt}")
