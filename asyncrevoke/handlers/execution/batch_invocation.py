"""Calls a batch handler: decodes the values, makes the call, and completes the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import DecodeError
from asyncrevoke.client.printable import reportable
from asyncrevoke.handlers.policy.batch import BatchError, HandlerBatch, Unsent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.execution.failure_policy import FailurePolicy
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.policy.signature import BatchHandlerCall


async def invoke_batch(
    batch: HandlerBatch,
    handler: Handler,
    calls: int,
    failures: FailurePolicy,
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
        await failures.send_to_topic(unsent, handler, calls - 1)
        failures.complete_all([unsent.record])
        batch.first_unsent_written()
    values, undecodable = await _decode(batch, handler, calls, failures)
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
                _complete(batch, [record for record in called if record not in failed], failures)
            raise
        batch.call_succeeded()
        _complete(batch, called, failures)
    if undecodable is not None:
        raise undecodable


async def _decode(
    batch: HandlerBatch, handler: Handler, calls: int, failures: FailurePolicy
) -> tuple[list[object], DecodeError | None]:
    """Decode values up to the first error that stops the batch; return them and the error."""
    assert handler.batch is not None
    decode = handler.batch.decode
    is_retry_topic = handler.retry_topic is not None and handler.retry_topic.topic == batch.topic
    values: list[object] = []
    for record in list(batch.records):
        try:
            values.append(decode(failures.original(record) if is_retry_topic else record))
        except DecodeError as error:
            if failures.may_retry(record, handler, error, calls):
                return values, error
            if failures.topic_for(record, handler, error) is not None:
                await failures.send_to_topic(Unsent(record, error), handler, 0)
                failures.complete_all([record])
            elif handler.on_error == "skip":
                failures.skip(record, handler, error)
            else:
                return values, error
            batch.remove([record])
    return values, None


def _complete(batch: HandlerBatch, records: list[Record], failures: FailurePolicy) -> None:
    failures.complete_all(records)
    batch.remove(set(records))
