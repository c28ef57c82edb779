"""Publishes what handlers return."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.client.producing.encoding import encode_key, encode_value
from asyncrevoke.client.producing.message import SAME_KEY, Headers, Message, PublishedRecord
from asyncrevoke.client.producing.queueing.result_group import (
    GROUP_RESULTS,
    GROUP_VALUE_BYTES,
    ResultGroup,
)
from asyncrevoke.client.producing.trace_context import PublishSpans, result_headers, trace_headers
from asyncrevoke.handlers.decoding.arrow_values import messages_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.producing.delivery import Delivery
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall


class ResultPublisher:
    """Publishes the results of handlers that have ``publish_to``.

    The function of :meth:`queue_of` queues the result of a direct call after the call has returned,
    and its record is completed when the result is acknowledged: one record batch acknowledges many.
    All other calls return when their results are acknowledged.
    """

    def __init__(self, producer: RecordProducer, pipeline: HandlerPipeline) -> None:
        self._producer = producer
        self._pipeline = pipeline

    def awaited(self, handler: Handler) -> HandlerCall:
        """A call of the handler that returns when its results are acknowledged."""
        inner, topic = handler.call, handler.publish_to
        assert inner is not None
        assert topic is not None

        async def publish(result: Awaitable[object], record: Record) -> None:
            await self.publish(topic, await result, record, handler.name)

        def call(record: Record, context: HandlerContext | None = None, /) -> Awaitable[None]:
            # Raises at once if the value does not decode, as a handler without results does.
            return publish(inner(record, context), record)

        return call

    def awaited_batch(
        self, function: BatchHandlerCall, topic: str, handler: str
    ) -> Callable[[object, Sequence[Record], HandlerContext], Awaitable[None]]:
        """A call of a batch handler that returns when its results are acknowledged.

        If there are as many results as records, each has the key and the trace context of the
        record with the same index; otherwise they have none. A tracer's span replaces the trace
        contexts.
        """

        async def call(
            values: object, records: Sequence[Record], context: HandlerContext, /
        ) -> None:
            results = as_list(await function(values, records, context), topic)
            of_records = records if len(results) == len(records) else [None] * len(results)
            delivery = self._producer.delivery(handler)
            with self._producer.spans(in_call=True) as spans:
                for value, record in zip(results, of_records, strict=True):
                    await self._queue(topic, value, record, spans, delivery)
                await delivery.wait()

        return call

    def queue_of(self, handler: Handler) -> Callable[[Record, object], Awaitable[object] | None]:
        """A function that queues the result of a call that has returned.

        The record is reported when the result is acknowledged. The function returns an awaitable if
        the result cannot be queued at once, otherwise None.
        """
        topic = handler.publish_to
        assert topic is not None
        completed, begin_group = self._pipeline.record_completed, self._producer.begin_group
        sink = _DirectResults(self._pipeline, handler.name, self._producer.observer)
        group = ResultGroup(topic, sink)
        values = group.values
        add_record, add_value = group.records.append, values.append

        def queue(record: Record, value: object, /) -> Awaitable[object] | None:
            if type(value) is bytes:
                encoded: bytes | None = value
            elif value is None:
                completed(record)
                return None
            elif type(value) in (Message, list):
                return self._publish_then_report(topic, value, record, handler.name)
            else:
                encoded = encode_value(topic, value)
            if not 0 < len(values) < GROUP_RESULTS and not begin_group(group):
                return self._publish_then_report(topic, value, record, handler.name)
            add_record(record)
            add_value(encoded)
            if encoded and len(encoded) > GROUP_VALUE_BYTES:
                # Count the memory of this value.
                begin_group(group)
            return None

        return queue

    async def _publish_then_report(
        self, topic: str, value: object, record: Record, handler: str
    ) -> None:
        await self.publish(topic, value, record, handler)
        self._pipeline.record_completed(record)

    async def publish(self, topic: str, value: object, record: Record, handler: str) -> None:
        """Publish a value, or a list of values; returns when all are acknowledged."""
        if value is None:
            return
        delivery = self._producer.delivery(handler)
        with self._producer.spans(in_call=True) as spans:
            for result in as_list(value, topic):
                await self._queue(topic, result, record, spans, delivery)
            await delivery.wait()

    async def _queue(
        self,
        topic: str,
        value: object,
        record: Record | None,
        spans: PublishSpans,
        delivery: Delivery,
    ) -> None:
        await self._producer.queue(*encoded_result(topic, value, record, spans), delivery)


def encoded_result(
    topic: str, value: object, record: Record | None, spans: PublishSpans
) -> PublishedRecord:
    """The result to write for a value or a Message that a handler has returned for a record.

    Raises PublishError.
    """
    key = None if record is None else record.key
    own: Headers = ()
    partition = timestamp = None
    if isinstance(value, Message):
        message = cast("Message[object]", value)
        topic = message.topic or topic
        key = key if message.key is SAME_KEY else encode_key(topic, message.key)
        own = message.headers
        partition, timestamp, value = message.partition, message.timestamp, message.value
    encoded = encode_value(topic, value)
    carried = spans.begin(topic) or (() if record is None else trace_headers(record))
    headers = result_headers(topic, carried, own)
    return PublishedRecord(topic, partition, key, encoded, headers, timestamp)


class _DirectResults:
    """Reports the ends of results of direct calls; the tokens of results are their records."""

    def __init__(
        self,
        pipeline: HandlerPipeline,
        handler: str,
        observer: Observers | None,
    ) -> None:
        self._pipeline = pipeline
        self._handler = handler
        self._observer = observer

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, _offset: int, /
    ) -> None:
        """Report the records as acknowledged."""
        if self._observer is not None:
            self._observer.on_results_published(self._handler, partition.topic, len(tokens))
        self._pipeline.results_acknowledged(cast("Sequence[Record]", tokens))

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """Report the records as failed."""
        self._pipeline.results_failed(cast("Sequence[Record]", tokens), error)


def as_list(value: object, topic: str) -> Sequence[object]:
    """The results for ``topic`` in what a handler has returned. Raises PublishError for columns
    without a value."""
    if value is None:
        return []
    if isinstance(value, list):
        return [result for result in cast("list[object]", value) if result is not None]
    messages = messages_of(value, topic)
    return [value] if messages is None else messages
