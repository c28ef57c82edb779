"""Calls a batch handler: decodes the values, makes the call, and completes the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client.errors import DecodeError
from asyncrevoke.client.printable import reportable
from asyncrevoke.handlers.policy.batch import BatchError, HandlerBatch, Unsent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall


class BatchSink(Protocol):
    """Receives the records of a batch that need no further call.

    Implemented by :class:`FailurePolicy`.
    """

    def original(self, record: Record) -> Record:
        """The record that a record of a retry topic was before it failed."""
        ...

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done."""

    def skip(self, record: Record, handler: Handler, error: BaseException) -> None:
        """This record has failed, and is done."""

    def may_retry(self, record: Record, handler: Handler, error: BaseException, calls: int) -> bool:
        """Whether ``retry`` allows another call for this record."""
        ...

    def topic_for(self, record: Record, handler: Handler, error: BaseException) -> str | None:
        """The topic that this failed record goes to; None if ``on_error`` decides."""
        ...

    def send_to_topic(self, unsent: Unsent, handler: Handler, calls: int) -> Awaitable[None]:
        """Write this record to another topic; returns when that is acknowledged."""
        ...


async def invoke_batch(
    batch: HandlerBatch,
    handler: Handler,
    calls: int,
    sink: BatchSink,
    call: Callable[[BatchHandlerCall, list[object], list[Record]], Awaitable[None]],
) -> None:
    """Write unsent records, and call the handler with all others that decode.

    ``calls`` counts this call. A record whose value does not decode goes to the dead letter topic,
    or is skipped. If ``retry`` applies, or ``on_error`` stops or pauses instead, the handler is
    called with the values before it, and then DecodeError is raised.

    When this returns, all records are done. When it raises, ``batch.records`` are not done; if
    ``batch.errors`` is not empty, only its records have failed, otherwise all of ``batch.called``.
    """
    assert handler.batch is not None
    while batch.unsent:
        unsent = batch.unsent[0]
        await sink.send_to_topic(unsent, handler, calls - 1)
        sink.complete_all([unsent.record])
        batch.first_unsent_written()
    values, undecodable = await _decode(batch, handler, calls, sink)
    called = batch.start_call(len(values))
    if called:
        try:
            await call(handler.batch.call, values, called)
        except BatchError as error:
            if all(index in range(len(called)) for index in error.errors):
                failed = {
                    called[index]: reportable(error.errors[index]) for index in sorted(error.errors)
                }
                batch.call_failed(failed)
                _complete(batch, [record for record in called if record not in failed], sink)
            raise
        batch.call_succeeded()
        _complete(batch, called, sink)
    if undecodable is not None:
        raise undecodable


async def _decode(
    batch: HandlerBatch, handler: Handler, calls: int, sink: BatchSink
) -> tuple[list[object], DecodeError | None]:
    """Decode values up to the first error that stops the batch; return them and the error."""
    assert handler.batch is not None
    decode = handler.batch.decode
    is_retry_topic = handler.retry_topic is not None and handler.retry_topic.topic == batch.topic
    values: list[object] = []
    for record in list(batch.records):
        try:
            values.append(decode(sink.original(record) if is_retry_topic else record))
        except DecodeError as error:
            if sink.may_retry(record, handler, error, calls):
                return values, error
            if sink.topic_for(record, handler, error) is not None:
                await sink.send_to_topic(Unsent(record, error), handler, 0)
                sink.complete_all([record])
            elif handler.on_error == "skip":
                sink.skip(record, handler, error)
            else:
                return values, error
            batch.remove([record])
    return values, None


def _complete(batch: HandlerBatch, records: list[Record], sink: BatchSink) -> None:
    sink.complete_all(records)
    batch.remove(set(records))
