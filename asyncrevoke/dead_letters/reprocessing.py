"""Calls handlers again, in this process, for the original records of dead letters."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.listing import MAX_NAMED, NamedRecord
from asyncrevoke.dead_letters.origin_reader import OriginReader
from asyncrevoke.replays.opened_handlers import Errors, OpenedHandlers, Target, open_handlers
from asyncrevoke.replays.range_source import handle_all
from asyncrevoke.replays.result_rows import ResultRows, Row

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.consumer import Consumer
    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic

# Rows are taken when there are this many, or after this many seconds.
_ROWS: Final = 1_000
_MAX_WAIT: Final = 0.2


@dataclass(slots=True)
class ReprocessResult:
    """The result so far.

    ``total`` counts the offsets of the topic, ``selected`` the dead letters that match the filter,
    and the records that are not dead letters. ``outcomes`` counts the selected ones by outcome, as
    a replay on Spark does: ``ok``, ``error``, ``skipped``, ``dead_lettered``. ``named`` has the
    first ones with another outcome than ``ok``.
    """

    total: int = 0
    selected: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    named: list[NamedRecord] = field(default_factory=list[NamedRecord])

    @property
    def failed(self) -> int:
        """The number of selected dead letters with another outcome than ``ok``."""
        return self.selected - self.outcomes.get("ok", 0)


class Reprocessing:
    """Calls the handlers of ``consumer`` for the original records of dead letters.

    ::

        async with DeadLetterTopic("orders.dlq", bootstrap_servers="kafka-1:9092") as letters:
            result = await Reprocessing(letters, consumer).run()

    A handler gets the record with the topic, partition, offset, key and value that it had when it
    failed. The consumer's order, concurrency, retries, middleware and resources apply; it joins no
    group and commits nothing, and nothing is written to the record's topic; what handlers publish
    is dropped, see :func:`topics_without_results`. Dead letters stay in
    their topic: another run calls the handlers again, with the same
    ``HandlerContext.idempotency_key``. A dead letter whose origin has no handler that writes to
    this topic is an error, unless ``chosen`` names that origin topic.

    ``errors`` is the option of a replay on Spark. ``"record"`` (default): the record's row has the
    error. ``"policy"``: dead letter topics, retry topics and ``on_error`` apply as in a live
    consumer. ``"fail"``: the first error ends the run. ``rows`` is called with the rows of dead
    letters, in the order in which their handlers end; without it, what handlers return is dropped
    and not encoded. ``limit`` is the most dead letters for which handlers are called: the first
    that each run reads. Raises ConfigError.
    """

    def __init__(
        self,
        letters: DeadLetterTopic,
        consumer: Consumer,
        chosen: DeadLetterFilter | None = None,
        *,
        errors: Errors = "record",
        limit: int | None = None,
        rows: Callable[[Sequence[Row]], object] | None = None,
    ) -> None:
        if errors not in get_args(Errors):
            raise ConfigError(f'errors={shown_option(errors)}: use "record", "policy" or "fail"')
        if limit is not None and limit < 1:
            raise ConfigError(f"limit={limit}: at least 1")
        self._letters = letters
        self._consumer = consumer
        self._chosen = chosen or DeadLetterFilter()
        self._target = Target("the consumer", errors)
        self._limit = limit
        self._rows = rows
        self.result = ReprocessResult()

    async def run(self) -> ReprocessResult:
        """Call the handlers for the dead letters that are in the topic now; return at their end.

        Raises DeadLettersError if the topic cannot be read, ReplayError if the consumer has no
        handlers or pauses a partition, and with ``errors="fail"`` the first error of a handler. If
        cancelled, handlers are cancelled too.
        """
        drops_results = self._rows is None
        outcomes = ResultRows(
            EventLog().of_application(),
            self._target.failed_as,
            origins=True,
            drops_results=drops_results,
        )
        async with AsyncExitStack() as stack:
            producer = (lambda: self._letters.producer) if self._target.errors == "policy" else None
            consumer = self._consumer
            opened = await open_handlers(
                consumer,
                consumer.config,
                self._target,
                stack,
                producer,
                drops_results=drops_results,
            )
            handling = asyncio.create_task(self._handle(opened, outcomes))
            try:
                while not handling.done():
                    await self._take(outcomes)
            finally:
                handling.cancel()
                await asyncio.wait([handling])
            await self._take(outcomes)
            handling.result()
        return self.result

    async def _handle(self, opened: OpenedHandlers, outcomes: ResultRows) -> None:
        try:
            ranges = await self._letters.ends()
            self.result.total = sum(len(offset_range) for offset_range in ranges.values())
            strict = self._target.errors == "fail"
            async with aclosing(self._letters.records(ranges)) as found:
                origins = OriginReader(
                    partial(_next_of, found),
                    self._chosen,
                    opened,
                    outcomes,
                    strict=strict,
                    limit=self._limit,
                )
                await handle_all(opened, None, origins.read, outcomes)
        finally:
            outcomes.end()

    async def _take(self, outcomes: ResultRows) -> None:
        rows = (await outcomes.rows(_ROWS, _MAX_WAIT)).rows
        result = self.result
        for row in rows:
            result.selected += 1
            result.outcomes[row.outcome] = result.outcomes.get(row.outcome, 0) + 1
            if row.outcome != "ok" and len(result.named) < MAX_NAMED:
                why = f"{row.error_type}: {row.error}" if row.error_type else row.outcome
                result.named.append(NamedRecord(row.partition, row.offset, why))
        if self._rows is not None and rows:
            self._rows(rows)


def topics_without_results(consumer: Consumer) -> list[str]:
    """The topics to which the consumer's handlers publish, by ``publish_to``: reprocessing drops
    what they publish."""
    router = consumer.handler_host.router
    handlers = () if router is None else router.handlers
    return sorted({handler.publish_to for handler in handlers if handler.publish_to is not None})


async def _next_of(found: AsyncGenerator[Sequence[Record]]) -> Sequence[Record]:
    """The next records; none at the end."""
    async for records in found:
        if records:
            return records
    return ()
