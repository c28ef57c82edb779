"""One record at a time: which handler it has, and what its failure means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError, DecodeError, HandlerExitError
from asyncrevoke.handlers.backlog import Backlog, Trial
from asyncrevoke.handlers.context import HandlerContext
from asyncrevoke.handlers.dead_letter import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.handlers.dead_letter import DeadLetters
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
        dead_letters: DeadLetters | None,
    ) -> None:
        self._source = source
        self._router = router
        self._backlog = backlog
        self._trials = backlog.trials
        self._log = log
        self._stop = stop
        self._state = state
        self._random = random
        self._dead_letters = dead_letters
        self._handlers: dict[str, Handler] = {}
        self._first_calls: dict[str, Callable[[Record], Awaitable[object]]] = {}
        self.finished = source.complete
        self.has_crashed = False

    def prepare(self, topic: str) -> None:
        """Look up the handler of a topic; ConfigError if it has none."""
        if topic not in self._handlers:
            handler = self._router.find(topic)
            if handler.dead_letter is not None and self._dead_letters is None:
                raise ConfigError(f"{handler.name} has a dead letter topic, and nothing sends it")
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
        handler = self._handlers[record.topic]
        if trial.failure is not None:
            await self._bury(record, handler, trial.failure, trial.calls)
        else:
            self._backlog.waiting.begin(record)
            trial.calls += 1
            await handler.call(record, self._context(record, trial.calls))
        del self._trials[record]

    async def _bury(
        self, record: Record, handler: Handler, failure: BaseException, calls: int
    ) -> None:
        assert handler.dead_letter is not None
        assert self._dead_letters is not None
        attempts = 0 if isinstance(failure, DecodeError) else calls
        try:
            letter = DeadLetter(record, failure, attempts)
            await self._dead_letters.send(handler.dead_letter, letter)
        except Exception as error:
            raise _UnsentError from error
        self._say(
            "a handler failed: its record went to the dead letter topic",
            record,
            handler,
            failure,
            dead_letter=handler.dead_letter,
            attempts=attempts,
        )

    # -- failures --------------------------------------------------------------------------------

    def failed(self, entry: Entry[Record], error: BaseException, /) -> bool:
        """Apply the handler's policy: another attempt, the dead letter topic, or ``on_error``."""
        record = entry[1]
        handler = self._handlers[record.topic]
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._fail(entry, HandlerExitError(error), handler)
            return False
        if isinstance(error, _UnsentError):
            self._halt(entry, error.__cause__ or error, handler, "a dead letter cannot be sent")
            return False
        trial = self._trials.get(record)
        calls = 1 if trial is None else trial.calls
        retry = handler.retry
        if retry is not None and retry.allows(error, calls):
            self._try_again(entry, error, handler, retry, calls)
        elif handler.dead_letter is not None:
            if trial is None:
                trial = self._trials[record] = Trial(calls)
            trial.failure = error
            self._backlog.bury(entry)
        elif handler.on_error == "skip":
            self._say("a handler failed: its record is skipped", record, handler, error)
            self._trials.pop(record, None)
            self._source.complete(record)
            return True
        elif handler.on_error == "pause":
            self._halt(entry, error, handler, "a handler failed")
        else:
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
        if not self._backlog.may_try_again(record):
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
            self._trials[record] = Trial(calls)
        self._backlog.try_again(entry, delay)

    def _fail(self, entry: Entry[Record], error: BaseException, handler: Handler) -> None:
        record = entry[1]
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        error.add_note(f"while {handler.name} handled {where}")
        self._backlog.abandon(record)
        self._stop(error)

    def _halt(
        self, entry: Entry[Record], error: BaseException, handler: Handler, what: str
    ) -> None:
        """Its partition stops and stays ours. What runs of it goes on."""
        record = entry[1]
        if not self._backlog.is_halted(record):
            self._backlog.halt(record)
        self._backlog.give_up(entry)
        self._log.error(
            f"{what}: its partition is paused; resume() reads the record again",
            handler=handler.name,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            exc_info=error,
        )

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


class _UnsentError(Exception):
    """A dead letter could not be sent; the cause says why."""
