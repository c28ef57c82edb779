"""One record or batch at a time: which handler it has, and what its failure means."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from asyncrevoke.errors import ConfigError, DecodeError, HandlerExitError, UnreadableRecordError
from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
from asyncrevoke.handlers.dead_letters.retry_message import Past, Postponed, past_of
from asyncrevoke.handlers.execution.batch_invocation import run_batch
from asyncrevoke.handlers.execution.invocation import HandlerCalls
from asyncrevoke.handlers.execution.worker_resources import UnopenedError
from asyncrevoke.handlers.policy.batch import Batch, Item, first_offset, records_of
from asyncrevoke.handlers.scheduling.backlog import TRACED, Backlog, Trial
from asyncrevoke.runtime.session.membership_guard import may_begin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.config import OrderBy
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetters
    from asyncrevoke.handlers.execution.invocation import Handlers
    from asyncrevoke.handlers.execution.worker_resources import WorkerResources
    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.registry import Handler
    from asyncrevoke.handlers.scheduling.clock import Clock
    from asyncrevoke.handlers.scheduling.lanes import Entry
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.model import Record
    from asyncrevoke.runtime.hooks.call_recorder import CallLog, Decision
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.hooks.observers import Observers


class HandlerWork:
    """What the workers do. ``stop`` ends the consumer; ``random`` varies the waits of retries."""

    def __init__(
        self,
        source: RecordSource,
        router: Handlers,
        backlog: Backlog,
        log: Log,
        stop: Callable[[BaseException], None],
        *,
        state: object,
        clock: Clock,
        random: Callable[[], float],
        dead_letters: DeadLetters | None,
        wall_clock: Callable[[], float],
        workers: WorkerResources | None = None,
        call_log: CallLog | None = None,
        observers: Observers | None = None,
        witness: Witness | None = None,
        order_by: OrderBy | None = None,
    ) -> None:
        self._source = source
        self._router = router
        self._backlog = backlog
        self._trials = backlog.trials
        self._log = log
        self._stop = stop
        self._random = random
        self._dead_letters = dead_letters
        self._wall_clock = wall_clock
        self._retry_topics = {
            handler.retry_topic.topic for handler in router.handlers if handler.retry_topic
        }
        self._call_log = call_log
        self._observers = observers
        # By topic, what has ended well since the last turn, if somebody looks on.
        watched = observers is not None and (observers.wants("timed") or observers.wants("raised"))
        self.times: dict[str, list[float]] | None = {} if watched else None
        # Sending to another topic is no call: what is being sent, and which of the times it took.
        self._sending: set[Item] = set()
        self._sent: list[tuple[str, int]] = []
        self._witness = witness
        self._order_by = order_by
        self._tracer = None if observers is None else observers.tracer
        # Topics whose first calls are made in the shortest way, unless a record is to be traced.
        self._direct: set[str] = set()
        self._calls = HandlerCalls(
            router,
            log,
            clock,
            source.membership,
            self._stuck,
            state=state,
            workers=workers,
            call_log=call_log,
            tracer=self._tracer,
            past=self._past if self._retry_topics else None,
        )
        self._handlers: dict[str, Handler] = {}
        self._first_calls: dict[str, Callable[[Item], Awaitable[object]]] = {}
        self.complete_all = source.complete_all if witness is None else self._complete_all
        # Records whose handlers have ended, which settle() counts as done all at once.
        self._done: list[Record] = []
        if witness is not None:
            witness.watch(self._done)
        # The hot path: a closure is called faster than a method, and without batches there is
        # nothing to tell apart at the end.
        self.start = self._starter()
        has_batches = any(handler.batch for handler in router.handlers)
        self.finished = (
            self._finished if has_batches else cast("Callable[[Item], object]", self._done.append)
        )
        self.has_crashed = False

    def prepare(self, topic: str) -> Handler:
        """The handler of a topic; ConfigError if it has none."""
        known = self._handlers.get(topic)
        if known is not None:
            return known
        handler = self._router.find(topic)
        sends = handler.dead_letter is not None or handler.retry_topic is not None
        if sends and self._dead_letters is None:
            raise ConfigError(
                f"{handler.name} has a dead letter topic or a retry topic, and nothing sends to it"
            )
        self._handlers[topic] = handler
        if self.times is not None:
            self.times[topic] = []
        if self._witness is not None:
            order_by = self._order_by if handler.order_by == "as configured" else handler.order_by
            order = "function" if callable(order_by) else order_by
            self._witness.ordered(topic, handler.name, order)
        first = self._calls.prepare(topic, handler)
        if first is None:
            self._first_calls[topic] = lambda item: self._call(item, handler, 1)
        else:
            self._direct.add(topic)
            self._first_calls[topic] = cast("Callable[[Item], Awaitable[object]]", first)
        return handler

    def choose(self, topic: str, records: Sequence[Record]) -> None:
        """Before they are put: which of them are to be traced."""
        if self._tracer is not None and records and topic in self._direct:
            chosen = self._tracer.choose(records)
            if chosen:
                self._backlog.trace(chosen)

    def attempt_of(self, item: Item) -> int:
        """Which call for it is made, or was made last, from 1."""
        trial = self._trials.get(item)
        return 1 if trial is None else trial.calls

    def _starter(self) -> Callable[[Item], Awaitable[object]]:
        trials, first_calls, call_again = self._trials, self._first_calls, self._call_again
        if self._witness is not None:
            return self._witnessed_starter(self._witness)

        def start(item: Item, /) -> Awaitable[object]:
            """Decode, and call the handler."""
            if trials and item in trials:
                return call_again(item, trials[item])
            return first_calls[item.topic](item)

        return start

    def _witnessed_starter(self, witness: Witness) -> Callable[[Item], Awaitable[object]]:
        trials, first_calls, call_again = self._trials, self._first_calls, self._call_again
        began = cast("Callable[[Item], object]", witness.began)

        def start(item: Item, /) -> Awaitable[object]:
            if trials and (trial := trials.get(item)) is not None:
                witness.again(records_of(item))
                return call_again(item, trial)
            began(item)
            return first_calls[item.topic](item)

        def start_any(item: Item, /) -> Awaitable[object]:
            if not isinstance(item, Batch):
                return start(item)
            witness.again(item.records)
            trial = trials.get(item)
            return first_calls[item.topic](item) if trial is None else call_again(item, trial)

        async def start_when_written(item: Item, /) -> None:
            await witness.start(records_of(item))
            await may_begin(self._source.membership)
            await start_any(item)

        if witness.strict:
            return start_when_written
        return start_any if any(handler.batch for handler in self._router.handlers) else start

    def _call(self, item: Item, handler: Handler, calls: int) -> Awaitable[object]:
        if isinstance(item, Batch):
            call = partial(self._calls.batch, item, handler, calls)
            return run_batch(item, handler, calls, self, call)
        return self._calls.one(item, handler, calls)

    def _stuck(self, item: Item) -> None:
        if not self._backlog.is_halted(item):
            self._backlog.halt(item)

    def _call_again(self, item: Item, trial: Trial) -> Awaitable[object]:
        if trial is TRACED and not isinstance(item, Batch):
            del self._trials[item]
            return self._calls.one(item, self._handlers[item.topic], 1)
        return self._next_call(item, trial)

    async def _next_call(self, item: Item, trial: Trial) -> None:
        handler = self._handlers[item.topic]
        if trial.failure is not None and not isinstance(item, Batch):
            await self._send(item, handler, trial.failure, trial.calls)
        elif trial.refused is not None:
            raise trial.refused
        else:
            self._backlog.waiting.begin(item)
            trial.calls += 1
            await self._call(item, handler, trial.calls)
        del self._trials[item]

    async def _send(
        self, record: Record, handler: Handler, error: BaseException, calls: int
    ) -> None:
        if self.times is None:
            await self.send_on(record, handler, error, calls)
            return
        self._sending.add(record)
        await self.send_on(record, handler, error, calls)
        self._sending.remove(record)
        # The worker goes on at once, and adds what this took.
        self._sent.append((record.topic, len(self.times[record.topic])))

    def raised(self, item: Item, seconds: float, error: BaseException, /) -> None:
        """Tell who looks on, unless it was the sending to another topic."""
        if item in self._sending:
            self._sending.remove(item)
        elif self._observers is not None:
            self._observers.raised(item, seconds, error)

    def _finished(self, item: Item) -> None:
        if isinstance(item, Batch):
            self._backlog.batch_ended(item)
        else:
            self._done.append(item)

    def settle(self) -> None:
        """Count what has finished as done."""
        if self._witness is not None:
            self._witness.turn(self._done)
        if self._done:
            done = self._done.copy()
            self._done.clear()
            self._source.complete_all(done)
        if self.times is not None:
            self._tell_times(self.times)

    def _tell_times(self, times: dict[str, list[float]]) -> None:
        assert self._observers is not None
        for topic, number in reversed(self._sent):
            del times[topic][number]
        self._sent.clear()
        for topic, seconds in times.items():
            if seconds:
                times[topic] = []
                self._observers.timed(topic, seconds)

    def _complete_all(self, records: Sequence[Record]) -> None:
        assert self._witness is not None
        self._witness.ended(records)
        self._source.complete_all(records)

    # -- single records --------------------------------------------------------------------------

    def _past(self, record: Record) -> Past:
        """What was before a record was read, which for most is nothing."""
        if record.topic in self._retry_topics and (past := past_of(record)) is not None:
            return past
        return Past(record, 0, 0)

    def _may_call_again(
        self, record: Record, handler: Handler, error: BaseException, calls: int
    ) -> bool:
        """Whether it is tried again where it is: not if it has come back from a retry topic."""
        retry = handler.retry
        if retry is None or not retry.allows(error, calls):
            return False
        return not self._past(record).returns

    def _goes_to(self, record: Record, handler: Handler, error: BaseException) -> str | None:
        """The topic that a record goes to which has failed; None if ``on_error`` decides."""
        later = handler.retry_topic
        if later and later.takes(error, handler.retry, self._past(record).returns):
            return later.topic
        return handler.dead_letter

    async def send_on(
        self, record: Record, handler: Handler, error: BaseException, calls: int
    ) -> None:
        """Send a record to the retry topic or to the dead letter topic."""
        topic = self._goes_to(record, handler, error)
        assert topic is not None
        assert self._dead_letters is not None
        past = self._past(record)
        uncalled = isinstance(error, (DecodeError, UnreadableRecordError))
        past = past._replace(calls=past.calls + (0 if uncalled else calls))
        what, fields = "the dead letter topic", {"dead_letter": topic}
        try:
            letter = DeadLetter(past.record, error, past.calls)
            if (later := handler.retry_topic) is not None and later.topic == topic:
                what, fields = "the retry topic", {"retry_topic": topic}
                letter = Postponed(past, error, self._wall_clock() + later.delay)
            if self._tracer is not None:
                letter.headers = list(self._tracer.headers(topic, letter.headers, error))
            await self._dead_letters.send(topic, letter)
        except Exception as unsent:
            raise _UnsentError(topic) from unsent
        self._say(
            f"a handler failed: its record went to {what}",
            record,
            handler,
            error,
            **fields,
            attempts=past.calls,
        )
        self._decided(record, "dead-lettered", error)

    def skip(self, record: Record, handler: Handler, error: BaseException) -> None:
        """Count a failed record as done."""
        self._say("a handler failed: its record is skipped", record, handler, error)
        self._decided(record, "skipped", error)
        self._source.complete(record)

    # -- failures --------------------------------------------------------------------------------

    def failed(self, entry: Entry[Item], error: BaseException, /) -> bool:
        """Apply the handler's policy: another attempt, the dead letter topic, or ``on_error``."""
        item = entry[1]
        handler = self._handlers[item.topic]
        trial = self._trials.get(item)
        calls = 1 if trial is None else trial.calls
        unopened = isinstance(error, UnopenedError)
        if unopened and error.__cause__ is not None:
            error = error.__cause__
            error.add_note("worker_resources could not be opened")
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            error, unopened = HandlerExitError(error), True
        if unopened:
            self._fail(entry, error, handler)
            return False
        if self._backlog.is_halted(item):
            self._give_up(entry, error, handler)
            return False
        if isinstance(error, _UnsentError):
            what = f"a record cannot be sent to {error}"
            self._halt(entry, error.__cause__ or error, handler, what)
            return False
        if isinstance(item, Batch):
            return self._batch_failed(entry, item, error, handler, calls)
        if self._may_call_again(item, handler, error, calls):
            self._try_again(entry, error, handler, calls)
        elif self._goes_to(item, handler, error) is not None:
            if trial is None:
                trial = self._trials[item] = Trial(calls)
            trial.failure = error
            self._backlog.send_on(entry)
        elif handler.on_error == "skip":
            self._trials.pop(item, None)
            self.skip(item, handler, error)
            return True
        else:
            self._give_in(entry, error, handler)
        return False

    def _batch_failed(
        self, entry: Entry[Item], batch: Batch, error: BaseException, handler: Handler, calls: int
    ) -> bool:
        again: dict[Record, BaseException] = {}
        errors = batch.errors or dict.fromkeys(batch.called, error)
        for record, its_error in errors.items():
            if self._may_call_again(record, handler, its_error, calls):
                again[record] = its_error
            elif self._goes_to(record, handler, its_error) is not None:
                batch.letters.append((record, its_error))
                batch.records.remove(record)
            elif handler.on_error == "skip":
                self.skip(record, handler, its_error)
                batch.records.remove(record)
            else:
                self._give_in(entry, its_error, handler)
                return False
        if again:
            self._try_again(entry, next(iter(again.values())), handler, calls)
        elif batch.letters:
            if batch not in self._trials:
                self._trials[batch] = Trial(calls)
            self._backlog.send_on(entry)
        elif batch.records:
            # What was called is done: the next value does not decode.
            self._give_in(entry, error, handler)
        else:
            self._trials.pop(batch, None)
            self._backlog.batch_ended(batch)
            return True
        return False

    def _try_again(
        self, entry: Entry[Item], error: BaseException, handler: Handler, calls: int
    ) -> None:
        item = entry[1]
        if not self._backlog.may_try_again(item):
            self._give_up(entry, error, handler)
            return
        assert handler.retry is not None
        delay = handler.retry.delay(calls, self._random)
        self._say(
            "a handler failed: it is tried again",
            item,
            handler,
            error,
            attempt=calls,
            seconds=round(delay, 3),
        )
        if calls == 1:
            self._trials[item] = Trial(calls)
        self._decided(item, "retried", error)
        self._backlog.try_again(entry, delay)

    def _give_up(self, entry: Entry[Item], error: BaseException, handler: Handler) -> None:
        """Nothing more is tried: the next owner gets it."""
        self._say("a handler failed while its partition stops", entry[1], handler, error)
        self._decided(entry[1], "given up", error)
        self._backlog.give_up(entry)

    def _give_in(self, entry: Entry[Item], error: BaseException, handler: Handler) -> None:
        if handler.on_error == "pause":
            self._halt(entry, error, handler, "a handler failed")
        else:
            self._fail(entry, error, handler)

    def _fail(self, entry: Entry[Item], error: BaseException, handler: Handler) -> None:
        item = entry[1]
        where = f"{item.topic}-{item.partition} at offset {first_offset(item)}"
        error.add_note(f"while {handler.name} handled {where}")
        self._decided(item, "stopped", error)
        self._backlog.abandon(item)
        self._stop(error)

    def _halt(self, entry: Entry[Item], error: BaseException, handler: Handler, what: str) -> None:
        """Its partition stops and stays ours. What runs of it goes on."""
        item = entry[1]
        self._decided(item, "paused", error)
        self._backlog.halt(item)
        self._log.error(
            f"{what}: its partition is paused; resume() reads the record again",
            handler=handler.name,
            topic=item.topic,
            partition=item.partition,
            offset=first_offset(item),
            exc_info=error,
        )
        self._backlog.give_up(entry)

    def cancelled(self, item: Item, error: BaseException, /) -> None:
        """The item is not done. An error raised while being cancelled is only logged."""
        if not isinstance(error, asyncio.CancelledError):
            handler = self._handlers[item.topic]
            self._say("a handler failed while it was cancelled", item, handler, error)
        if self._witness is not None:
            self._witness.cancelled(records_of(item), error)
        self._backlog.abandon(item)

    def crashed(self, error: BaseException, /) -> None:
        """A worker itself has failed: stop without waiting for what runs."""
        self.has_crashed = True
        self._stop(error)

    def _decided(self, item: Item, decision: Decision, error: BaseException) -> None:
        if self._witness is not None:
            for record in records_of(item):
                self._witness.decided(record, decision, error)
        if self._call_log is not None:
            for record in records_of(item):
                self._call_log.decided(record, decision)
        if self._observers is not None:
            for record in records_of(item):
                self._observers.decided(record, decision)

    def _say(
        self, event: str, item: Item, handler: Handler, error: BaseException, **fields: object
    ) -> None:
        self._log.warning(
            event,
            handler=handler.name,
            topic=item.topic,
            partition=item.partition,
            offset=first_offset(item),
            **fields,
            exc_info=error,
        )


class _UnsentError(Exception):
    """A record could not be sent to a topic, which is named; the cause says why."""
