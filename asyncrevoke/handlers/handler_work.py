"""One record at a time: which handler it has, and what its failure means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.errors import HandlerExitError
from asyncrevoke.handlers.backlog import Backlog, Trial
from asyncrevoke.handlers.context import HandlerContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.lanes import Entry
    from asyncrevoke.handlers.log import Log
    from asyncrevoke.handlers.registry import Handler, Router
    from asyncrevoke.handlers.retry import Retry
    from asyncrevoke.handlers.source import RecordSource
    from asyncrevoke.model import Record


class HandlerWork:
    """What the workers do. ``stop`` ends the consumer; ``random`` varies the waits of retries."""

    def __init__(
        self,
        source: RecordSource,
        router: Router,
        backlog: Backlog,
        log: Log,
        stop: Callable[[BaseException], None],
        *,
        state: object,
        random: Callable[[], float],
    ) -> None:
        self._source = source
        self._router = router
        self._backlog = backlog
        self._trials = backlog.trials
        self._log = log
        self._stop = stop
        self._state = state
        self._random = random
        self._handlers: dict[str, Handler] = {}
        self._first_calls: dict[str, Callable[[Record], Awaitable[object]]] = {}
        self.finished = source.complete
        self.has_crashed = False

    def prepare(self, topic: str) -> None:
        """Look up the handler of a topic; ConfigError if it has none."""
        if topic not in self._handlers:
            handler = self._router.find(topic)
            self._handlers[topic] = handler
            self._first_calls[topic] = (
                self._with_context(handler) if handler.wants_context else handler.call
            )

    def start(self, record: Record, /) -> Awaitable[object]:
        """Decode, and call the handler."""
        if self._trials and (trial := self._trials.get(record)) is not None:
            return self._call_again(record, trial)
        return self._first_calls[record.topic](record)

    def _with_context(self, handler: Handler) -> Callable[[Record], Awaitable[object]]:
        return lambda record: handler.call(record, self._context(record, 1))

    def _context(self, record: Record, attempt: int) -> HandlerContext:
        return HandlerContext(record, attempt, self._state, self._log)

    async def _call_again(self, record: Record, trial: Trial) -> None:
        self._backlog.waiting.begin(record)
        trial.calls += 1
        await self._handlers[record.topic].call(record, self._context(record, trial.calls))
        del self._trials[record]

    # -- failures --------------------------------------------------------------------------------

    def failed(self, entry: Entry[Record], error: BaseException, /) -> bool:
        """Apply the handler's policy: another attempt, or ``on_error``."""
        record = entry[1]
        handler = self._handlers[record.topic]
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._fail(entry, HandlerExitError(error), handler)
            return False
        trial = self._trials.get(record)
        calls = 1 if trial is None else trial.calls
        retry = handler.retry
        if retry is not None and retry.allows(error, calls):
            self._try_again(entry, error, handler, retry, calls)
            return False
        if handler.on_error == "skip":
            self._say("a handler failed: its record is skipped", record, handler, error)
            self._trials.pop(record, None)
            self._source.complete(record)
            return True
        self._fail(entry, error, handler)
        return False

    def _try_again(
        self,
        entry: Entry[Record],
        error: BaseException,
        handler: Handler,
        retry: Retry,
        calls: int,
    ) -> None:
        record = entry[1]
        if not self._backlog.may_start(record):
            self._say("a handler failed while its partition stops", record, handler, error)
            self._backlog.give_up(entry)
            return
        delay = retry.delay(calls, self._random)
        self._say(
            "a handler failed: it is tried again",
            record,
            handler,
            error,
            attempt=calls,
            seconds=round(delay, 3),
        )
        if calls == 1:
            self._trials[record] = Trial()
        self._backlog.try_again(entry, delay)

    def _fail(self, entry: Entry[Record], error: BaseException, handler: Handler) -> None:
        record = entry[1]
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        error.add_note(f"while {handler.name} handled {where}")
        self._backlog.abandon(record)
        self._stop(error)

    def cancelled(self, record: Record, error: BaseException, /) -> None:
        """The record is not done. An error raised while being cancelled is only logged."""
        self._backlog.abandon(record)
        if not isinstance(error, asyncio.CancelledError):
            handler = self._handlers[record.topic]
            self._say("a handler failed while it was cancelled", record, handler, error)

    def crashed(self, error: BaseException, /) -> None:
        """A worker itself has failed: stop without waiting for what runs."""
        self.has_crashed = True
        self._stop(error)

    def _say(
        self, event: str, record: Record, handler: Handler, error: BaseException, **fields: object
    ) -> None:
        self._log.warning(
            event,
            handler=handler.name,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            **fields,
            exc_info=error,
        )
