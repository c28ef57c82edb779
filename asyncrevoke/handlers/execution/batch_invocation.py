"""One call for a batch: what does not decode, the call itself, and what it says of each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.errors import DecodeError
from asyncrevoke.handlers.policy.batch import Batch, BatchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.handlers.policy.signature import BatchCall
    from asyncrevoke.handlers.registry import Handler
    from asyncrevoke.model import Record


class Settling(Protocol):
    """Where the records of a batch end."""

    def complete_all(self, records: Sequence[Record]) -> None:
        """They are done."""
        ...

    def skip(self, record: Record, handler: Handler, error: BaseException) -> None:
        """It has failed, and counts as done."""
        ...

    def send_on(
        self, record: Record, handler: Handler, error: BaseException, calls: int
    ) -> Awaitable[None]:
        """It goes to another topic; returns when that has it."""
        ...


async def run_batch(
    batch: Batch,
    handler: Handler,
    calls: int,
    settling: Settling,
    call: Callable[[BatchCall, list[object], list[Record]], Awaitable[None]],
) -> None:
    """Call the handler, by ``call``, with what decodes; ``calls`` counts this call.

    A value that does not decode leaves the batch: to the dead letter topic, or skipped. If the
    policy stops at it, what comes before it is handled first, and then DecodeError is raised.

    When this raises, ``batch.records`` are those that are not done; ``batch.errors`` says which of
    them have failed, and why, unless all of ``batch.called`` have failed by what is raised. When
    it returns, all are done.
    """
    assert handler.batch is not None
    while batch.letters:
        record, error = batch.letters[0]
        await settling.send_on(record, handler, error, calls - 1)
        settling.complete_all([record])
        del batch.letters[0]
    values, stopped_by = await _decode(batch, handler, settling)
    called = batch.called = batch.records[: len(values)]
    batch.errors = {}
    if called:
        try:
            await call(handler.batch.call, values, called)
        except BatchError as error:
            if all(index in range(len(called)) for index in error.errors):
                failed = {called[index]: error.errors[index] for index in sorted(error.errors)}
                batch.errors = failed
                _complete(batch, [record for record in called if record not in failed], settling)
            raise
        batch.called = []
        _complete(batch, called, settling)
    if stopped_by is not None:
        raise stopped_by


async def _decode(
    batch: Batch, handler: Handler, settling: Settling
) -> tuple[list[object], DecodeError | None]:
    """The values of the first records of the batch, and what stops it after those."""
    assert handler.batch is not None
    values: list[object] = []
    for record in list(batch.records):
        try:
            values.append(handler.batch.decode(record))
        except DecodeError as error:
            if handler.dead_letter is not None:
                await settling.send_on(record, handler, error, 0)
                settling.complete_all([record])
            elif handler.on_error == "skip":
                settling.skip(record, handler, error)
            else:
                return values, error
            batch.records.remove(record)
    return values, None


def _complete(batch: Batch, records: list[Record], settling: Settling) -> None:
    done = set(records)
    settling.complete_all(records)
    batch.records = [record for record in batch.records if record not in done]
