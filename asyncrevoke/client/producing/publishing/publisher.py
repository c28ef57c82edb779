"""Publishes single records, and keeps the errors that no call has received."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.printable import counted, error_text
from asyncrevoke.client.producing.encoding import encode_headers, encode_key, encode_value
from asyncrevoke.client.producing.publishing.acknowledgement import Acknowledgement
from asyncrevoke.client.producing.trace_context import result_headers

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import ProducerHealth, TopicPartition
    from asyncrevoke.client.producing.message import Headers, Published, RecordFields
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.hooks.observers import PublishSpan, Tracer

_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []
# Most records whose errors are kept for flush().
_MOST_FAILED: Final = 10_000


class Publisher:
    """Publishes records over ``producer``, and receives their acknowledgements.

    If a record fails and no call waits for it, ``log`` has its error, and :meth:`flush` raises it.
    """

    def __init__(self, producer: RecordProducer, log: Log) -> None:
        self.producer = producer
        self._log = log
        self._tracer = producer.tracer
        # Records whose errors no call may have received, and how many more there are.
        self._failed: list[Acknowledgement] = []
        self._more_failed = 0

    def begin(
        self,
        topic: str,
        value: object,
        key: bytes | str | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Acknowledgement | Coroutine[object, None, Acknowledgement]:
        """Queue a record; if it has to wait for its topic or for memory, returns a coroutine that
        waits and queues it. Raises PublishError."""
        encoded = value if type(value) is bytes else encode_value(topic, value)
        encoded_key = key if key is None or type(key) is bytes else encode_key(topic, key)
        record = Acknowledgement(topic)
        try:
            if self._tracer is not None:
                own = self._traced(self._tracer, record, headers)
            else:
                own = encode_headers(topic, headers) if headers else _NO_HEADERS
            fields = topic, partition, encoded_key, encoded, own, timestamp
            if self.producer.append(fields, self, record):
                return record
        except Exception as error:
            record.fail(error)
            raise
        return self._queue(record, fields)

    async def _queue(self, record: Acknowledgement, fields: RecordFields) -> Acknowledgement:
        queued = False

        def append() -> bool:
            nonlocal queued
            queued = self.producer.append(fields, self, record, has_waited=True)
            return queued

        try:
            await self.producer.queue_in_turn(record.topic, append)
        except Exception as error:
            record.fail(error)
            raise
        except asyncio.CancelledError:
            # It may have been queued just before.
            if not queued:
                record.fail(PublishError(record.topic, "the call was cancelled"))
            raise
        return record

    async def publish(
        self,
        topic: str,
        value: object,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Published:
        """Queue a record, and wait for its acknowledgement. Raises PublishError."""
        begun = self.begin(topic, value, key, headers, partition, timestamp)
        record = begun if type(begun) is Acknowledgement else await begun
        try:
            return await record
        except asyncio.CancelledError:
            # The caller knows that it does not know.
            record.take_error()
            raise

    def _traced(
        self, tracer: Tracer, record: Acknowledgement, headers: Headers
    ) -> list[tuple[str, bytes | None]]:
        """The headers of a record with those of its span, which ends with the record."""
        span = tracer.publish_span(record.topic, in_call=False)
        record.report_end(partial(self._end_span, span))
        return result_headers(record.topic, span.headers, headers)

    def _end_span(self, span: PublishSpan, error: Exception | None) -> None:
        try:
            span.end(error)
        except Exception as failure:  # noqa: BLE001 - a tracer must not end the producer
            log_events.OBSERVER_FAILED.write_to(
                self._log, observer=type(span).__name__, exc_info=failure
            )

    # --- acknowledgements and errors -------------------------------------------------------------

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        """The records of these acknowledgements are written."""
        records = cast("Sequence[Acknowledgement]", tokens)
        Acknowledgement.acknowledge(records, partition.partition, offset)
        if (observer := self.producer.observer) is not None:
            observer.on_results_published("", partition.topic, len(tokens))

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """The records of these acknowledgements are not written, or it is unknown."""
        records = cast("Sequence[Acknowledgement]", tokens)
        if not records:
            return
        unheard = [record for record in records if not record.is_error_taken]
        for record in records:
            record.fail(error)
        if (observer := self.producer.observer) is not None:
            observer.on_publish_failed(records[0].topic, len(records), error)
        # A call that waits may be cancelled before it receives the error.
        self._keep(records)
        if unheard:
            log_events.RECORDS_NOT_PUBLISHED.write_to(
                self._log,
                topic=unheard[0].topic,
                records=len(unheard),
                reason=_reason(error),
                in_doubt=_is_in_doubt(error),
            )

    def _keep(self, failed: Sequence[Acknowledgement]) -> None:
        kept = [record for record in self._failed if not record.is_error_taken]
        self._failed = [*kept, *failed[: max(_MOST_FAILED - len(kept), 0)]]
        self._more_failed += len(kept) + len(failed) - len(self._failed)

    @property
    def failed(self) -> int:
        """Records that have failed, and whose errors no call has received."""
        return self._more_failed + sum(not record.is_error_taken for record in self._failed)

    def health(self) -> ProducerHealth:
        """The present state of the producer."""
        return self.producer.health(self.failed)

    def raise_failures(self) -> None:
        """Raise the first of the errors that no call has received, once; it counts the others."""
        failed = [record for record in self._failed if not record.is_error_taken]
        # Calls wait for the others.
        self._failed = [record for record in self._failed if record.is_waited_for]
        more, self._more_failed = self._more_failed, 0
        errors = [
            (record.topic, error) for record in failed if (error := record.take_error()) is not None
        ]
        if not errors:
            return
        topic, first = errors[0]
        others = len(errors) + more - 1
        reason = _reason(first)
        if others:
            reason = f"{reason} (and {counted(others, 'other record')} failed)"
        raise PublishError(
            topic,
            reason,
            in_doubt=any(_is_in_doubt(error) for _, error in errors),
            of_record=isinstance(first, PublishError) and first.of_record,
        ) from first

    async def flush(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - says how many records are left
    ) -> None:
        """Wait until all records that are queued now are acknowledged or have failed.

        Raises TimeoutError after ``timeout`` seconds, and then as :meth:`raise_failures` does.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.producer.flush()
        except TimeoutError:
            left = counted(self.producer.queued, "record")
            raise TimeoutError(f"{left} not acknowledged within {timeout:g} s") from None
        self.raise_failures()


def _is_in_doubt(error: Exception) -> bool:
    """Whether the record may have been written: as far as is known, if the producer has ended."""
    return error.in_doubt if isinstance(error, PublishError) else True


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, PublishError) else error_text(error)
