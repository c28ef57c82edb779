"""Adds what handlers return to the transaction that commits their records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.producing.encoding import encode_value
from asyncrevoke.client.producing.exactly_once.finished_records import ResultTarget
from asyncrevoke.client.producing.exactly_once.known_topics import wait_for_topic
from asyncrevoke.client.producing.message import Message
from asyncrevoke.handlers.execution.result_publisher import as_list, encoded_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.client.producing.exactly_once.finished_records import CallResults
    from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
    from asyncrevoke.handlers.execution.pipeline import HandlerPipeline
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall, HandlerCall


class TransactionalPublisher:
    """Publishes the results of handlers that have ``publish_to``, in transactions.

    A call returns when its results are encoded and their topics are known: a topic that does not
    exist fails the call. Its methods are those of :class:`ResultPublisher`.
    """

    def __init__(self, transactions: RecordTransactions, pipeline: HandlerPipeline) -> None:
        self._transactions = transactions
        self._pipeline = pipeline

    def awaited(self, handler: Handler) -> HandlerCall:
        """A call of the handler that adds its results to those of the record."""
        inner, topic = handler.call, handler.publish_to
        assert inner is not None
        assert topic is not None

        async def publish(
            result: Awaitable[object], record: Record, context: HandlerContext | None
        ) -> None:
            assert context is not None
            assert context.results is not None
            await self._add(topic, await result, record, context.results)

        def call(record: Record, context: HandlerContext | None = None, /) -> Awaitable[None]:
            return publish(inner(record, context), record, context)

        return call

    def awaited_batch(
        self, function: BatchHandlerCall, topic: str, _handler: str
    ) -> Callable[[object, Sequence[Record], HandlerContext], Awaitable[None]]:
        """A call of a batch handler that adds its results to those of the batch."""

        async def call(
            values: object, records: Sequence[Record], context: HandlerContext, /
        ) -> None:
            assert context.results is not None
            results = as_list(await function(values, records, context), topic)
            of_records = records if len(results) == len(records) else [None] * len(results)
            for value, record in zip(results, of_records, strict=True):
                await self._add(topic, value, record, context.results)

        return call

    def queue_of(self, handler: Handler) -> Callable[[Record, object], Awaitable[object] | None]:
        """A function that takes the result of a call that has returned.

        It returns an awaitable if it has to wait for the topic's metadata, otherwise None.
        """
        topic = handler.publish_to
        assert topic is not None
        completed = self._pipeline.record_completed
        refused = partial(self._pipeline.results_refused, handler, 1)
        add, target = self._transactions.add_result, ResultTarget(topic, handler.name, refused)
        is_known = False

        def queue(record: Record, value: object, /) -> Awaitable[object] | None:
            nonlocal is_known
            if type(value) is bytes:
                encoded: bytes | None = value
            elif value is None:
                completed(record)
                return None
            elif type(value) in (Message, list):
                return self._add_then_complete(target, value, record)
            else:
                encoded = encode_value(topic, value)
            is_known = is_known or self._transactions.producer.is_known(topic)
            if encoded is None or not is_known:
                return self._add_then_complete(target, value, record)
            add(record, target, encoded)
            return None

        return queue

    async def _add_then_complete(self, target: ResultTarget, value: object, record: Record) -> None:
        results = self._transactions.finished.call_results(record, target.handler, target.refused)
        await self._add(target.topic, value, record, results)
        self._pipeline.record_completed(record)

    async def _add(
        self, topic: str, value: object, record: Record | None, results: CallResults
    ) -> None:
        transactions = self._transactions
        with transactions.producer.spans(in_call=True) as spans:
            for each in as_list(value, topic):
                result = encoded_result(topic, each, record, spans)
                await wait_for_topic(lambda: transactions.producer, result.topic)
                results.append(result)
