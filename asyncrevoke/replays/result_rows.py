"""The result rows of a range: one row per record, in the order of completion."""

from __future__ import annotations

import asyncio
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypedDict, cast

import msgspec

from asyncrevoke.client.model import Record
from asyncrevoke.client.printable import error_text
from asyncrevoke.client.producing.encoding import value_bytes
from asyncrevoke.client.producing.message import Message
from asyncrevoke.handlers.decoding.arrow_values import messages_of
from asyncrevoke.replays.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncrevoke.client.log_events import Level, Log
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision


class OriginRecord(Record, frozen=True, gc=False, eq=False):
    """The original record of a dead letter, with the topic, partition and offset that it had.

    The dead letter is at ``letter_offset`` of ``letter_partition``.
    """

    letter_partition: int = -1
    letter_offset: int = -1


def place_of(record: Record) -> tuple[int, int]:
    """The partition and the offset from which a replay has read a record or its dead letter."""
    if isinstance(record, OriginRecord):
        return record.letter_partition, record.letter_offset
    return record.partition, record.offset


Outcome: TypeAlias = Literal["ok", "error", "skipped", "sent_to_retry_topic", "dead_lettered"]

# The most rows that wait for Spark; reading stops until they are taken.
_MOST_ROWS = 50_000
# Characters of an error's text in its row.
_MOST_TEXT = 4096
_EXAMPLES = 3
_MOST_EXAMPLE = 200


class Origin(TypedDict):
    """The place of the original record of a dead letter."""

    topic: str
    partition: int
    offset: int


class Row(NamedTuple):
    """One record's row. Times are microseconds since the epoch, None if no handler was called.

    ``attempts`` counts the calls. ``result`` is the handler's result, or the value of its
    ``Message``: bytes unchanged, text as UTF-8, all else as JSON, null for None. For a dead letter,
    ``partition`` and ``offset`` are its place, and ``origin`` is the place of the original record.
    """

    partition: int
    offset: int
    attempts: int
    started_us: int | None
    finished_us: int | None
    outcome: Outcome
    error_type: str | None
    error: str | None
    result: bytes | None
    origin: Origin | None = None


class FastPathRows:
    """Rows of records whose first call succeeded, by column; times in nanoseconds.

    Most records have such rows, and the garbage collector does not visit numbers in arrays.
    """

    __slots__ = ("finished", "offsets", "results", "started")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.started = array("q")
        self.finished = array("q")
        self.results: list[bytes | None] = []

    def __len__(self) -> int:
        return len(self.results)


class FinishedRows(NamedTuple):
    """The rows completed since the last call."""

    quick: FastPathRows
    rows: list[Row]


class _Call(NamedTuple):
    attempt: int
    started: int
    finished: int
    result: object
    error: BaseException | None


class ResultRows:
    """The result rows of a replay. It is also the call recorder and the logger of the handlers.

    ``failed_as`` is the outcome of a record that ``on_error="skip"`` skips. A failure of a record
    is written to its row, not to ``log``. ``errors`` counts the rows with the outcome ``"error"``;
    ``examples`` describes the first ones. ``stopped_at`` is the record whose failure has stopped
    the handlers. With ``origins`` the records are ``OriginRecord``. With ``drops_results`` the
    result of each row is None, and no result is encoded.
    """

    def __init__(
        self,
        log: Log,
        failed_as: Literal["error", "skipped"],
        *,
        origins: bool = False,
        drops_results: bool = False,
    ) -> None:
        self._log = log
        self._origins = origins
        self._drops_results = drops_results
        self._failed_as: Outcome = failed_as
        self._calls: dict[tuple[int, int], _Call] = {}
        self._decided: dict[tuple[int, int], Outcome] = {}
        # Errors of records for which no handler was called.
        self._rejected: dict[tuple[int, int], BaseException] = {}
        self._rows: list[Row] = []
        self._quick = FastPathRows()
        # Whether the fast path builds the rows of successful first calls.
        self._makes_rows = False
        self._waiter: asyncio.Future[None] | None = None
        self._has_rows: asyncio.Future[None] | None = None
        self._least = 1
        self._ended = False
        self._clock = time.time_ns
        self.examples: list[str] = []
        self.stopped_at: str | None = None
        self.errors = 0
        self.done = 0

    # -- calls -----------------------------------------------------------------------------------

    async def call(
        self,
        _name: str,
        _function: object,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
        /,
    ) -> None:
        """Call a handler, and keep the times and the result."""
        clock, calls = self._clock, self._calls
        started = clock() // 1000
        try:
            result = await call()
        except BaseException as error:
            ended = _Call(attempt, started, clock() // 1000, None, error)
            for record in records:
                calls[place_of(record)] = ended
            raise
        if self._drops_results:
            result = None
        ended = _Call(attempt, started, clock() // 1000, result, None)
        for record in records:
            calls[place_of(record)] = ended
            if result is not None:
                # The result of a batch goes into the row of its first record.
                ended = ended._replace(result=None)
                result = None

    def first_call(
        self, call: Callable[[Record], Awaitable[object]], /
    ) -> Callable[[Record], Awaitable[object]]:
        """Wrap the first call of records without middleware: the fast path."""
        if self._origins:
            return partial(self._call_origin, call)
        self._makes_rows = True
        clock, calls, drops_results = self._clock, self._calls, self._drops_results

        async def timed(record: Record) -> None:
            started = clock()
            try:
                result = await call(record)
            except BaseException as error:
                key = record.partition, record.offset
                calls[key] = _Call(1, started // 1000, clock() // 1000, None, error)
                raise
            finished = clock()
            encoded: bytes | None = None
            if result is not None and not drops_results:
                try:
                    encoded = encode_result(result)
                except ReplayError:
                    key = record.partition, record.offset
                    calls[key] = _Call(1, started // 1000, finished // 1000, result, None)
                    return
            quick = self._quick
            quick.offsets.append(record.offset)
            quick.started.append(started)
            quick.finished.append(finished)
            quick.results.append(encoded)

        return timed

    async def _call_origin(
        self, call: Callable[[Record], Awaitable[object]], record: Record
    ) -> None:
        await self.call("", None, (record,), 1, partial(call, record))

    def failure_decided(
        self, record: Record, decision: FailureDecision, error: BaseException, /
    ) -> None:
        """Keep the decision about a failed record."""
        key = place_of(record)
        self._rejected[key] = error
        if decision == "stopped":
            self.stopped_at = f"{record.topic_partition} at offset {record.offset}"
        if decision == "skipped":
            self._decided[key] = self._failed_as
        elif decision in ("dead_lettered", "sent_to_retry_topic"):
            self._decided[key] = decision

    def complete(self, records: Sequence[Record], /) -> None:
        """Build the rows of these completed records."""
        self.done += len(records)
        if not self._makes_rows or self._calls or self._decided:
            self._complete(records)
        self._wake_if_enough()

    def reject(self, record: Record, error: Exception) -> None:
        """Build the row of a record for which no handler can be called."""
        self.done += 1
        key, name, text = place_of(record), type(error).__qualname__, error_text(error, _MOST_TEXT)
        self._count_error(key, f"{name}: {text}")
        row = Row(*key, 0, None, None, "error", name, text, None)
        self._rows.append(_with_origin(row, record))
        self._wake_if_enough()

    def _wake_if_enough(self) -> None:
        if (
            self._has_rows is not None
            and len(self._rows) + len(self._quick) >= self._least
            and not self._has_rows.done()
        ):
            self._has_rows.set_result(None)

    def _complete(self, records: Sequence[Record]) -> None:
        calls, decided, rows = self._calls, self._decided, self._rows
        for record in records:
            key = place_of(record)
            call = calls.pop(key, None)
            if key in decided:
                row = self._row_of_failure(key, call)
            elif call is None and self._makes_rows:
                continue
            elif call is None:  # a middleware has returned without calling the handler
                row = Row(*key, 0, None, None, "ok", None, None, None)
            else:
                row = self._row_of_success(key, call)
            rows.append(_with_origin(row, record) if self._origins else row)

    def _row_of_success(self, key: tuple[int, int], call: _Call) -> Row:
        result = call.result
        if self._rejected:
            self._rejected.pop(key, None)  # of an attempt before
        # The call may have an error: of other records in its batch, or one that a middleware
        # caught.
        if result is None:
            return Row(*key, call.attempt, call.started, call.finished, "ok", None, None, None)
        try:
            encoded = encode_result(result)
        except ReplayError as error:
            self._count_error(key, str(error))
            return Row(
                *key, call.attempt, call.started, call.finished, "error", "ResultError",
                str(error), None,
            )  # fmt: skip
        return Row(*key, call.attempt, call.started, call.finished, "ok", None, None, encoded)

    def _row_of_failure(self, key: tuple[int, int], call: _Call | None) -> Row:
        outcome = self._decided.pop(key, self._failed_as)
        error = self._rejected.pop(key, None)
        if error is None and call is not None:
            error = call.error
        name = None if error is None else type(error).__qualname__
        text = None if error is None else error_text(error, _MOST_TEXT)
        if outcome == "error":
            self._count_error(key, f"{name}: {text}")
        if call is None:
            return Row(*key, 0, None, None, outcome, name, text, None)
        return Row(*key, call.attempt, call.started, call.finished, outcome, name, text, None)

    def _count_error(self, key: tuple[int, int], text: str) -> None:
        self.errors += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"partition {key[0]}, offset {key[1]}: {text[:_MOST_EXAMPLE]}")

    # -- rows ------------------------------------------------------------------------------------

    async def wait_for_room(self) -> None:
        """Return when fewer rows than the limit wait."""
        while len(self._rows) + len(self._quick) >= _MOST_ROWS:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def rows(self, least: int, max_wait: float) -> FinishedRows:
        """Take the rows once there are ``least``, or after ``max_wait`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait
        self._least = least
        while (
            not self._ended
            and len(self._rows) + len(self._quick) < least
            and (left := deadline - loop.time()) > 0
        ):
            self._has_rows = loop.create_future()
            await asyncio.wait([self._has_rows], timeout=left)
        return self.take()

    def end(self) -> None:
        """The last record is done: let :meth:`rows` return without waiting."""
        self._ended = True
        if self._has_rows is not None and not self._has_rows.done():
            self._has_rows.set_result(None)

    def take(self) -> FinishedRows:
        """Take all rows."""
        taken = FinishedRows(self._quick, self._rows)
        self._quick, self._rows = FastPathRows(), []
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return taken

    # -- the log of handlers ---------------------------------------------------------------------

    def write(self, level: Level, event: str, fields: Mapping[str, object], /) -> None:
        """Write a line, unless it is about a record's failure, which the record's row has."""
        if level != "warning" or "exc_info" not in fields or "offset" not in fields:
            self._log.write(level, event, fields)


def _with_origin(row: Row, record: Record) -> Row:
    if not isinstance(record, OriginRecord):
        return row
    return row._replace(
        origin={"topic": record.topic, "partition": record.partition, "offset": record.offset}
    )


def encode_result(result: object) -> bytes | None:
    """Encode a handler's result as it would be published: a ``Message`` is its value, and a list is
    JSON with the values of its elements. Raises ReplayError."""
    if isinstance(result, Message):
        value = cast("Message[object]", result).value
        return None if value is None else encode_result(value)
    try:
        return value_bytes(result, _json)
    except Exception as error:  # serializers of a user's class may raise any
        raise ReplayError(
            f"the handler returned {type(result).__qualname__}, which cannot be written as a "
            f"result ({error}): return None, bytes, str, or what has a form in JSON (numbers, "
            "lists, dictionaries, dataclasses, msgspec.Structs, pydantic models)"
        ) from error


def _json_form(value: object) -> object:
    """What msgspec encodes for a value that it does not know."""
    if isinstance(value, Message):
        return cast("Message[object]", value).value
    if callable(getattr(value, "model_dump_json", None)):
        return msgspec.Raw(value_bytes(value, _json))
    rows = messages_of(value, "the results of a replay")
    if rows is not None:
        return [row.value for row in rows]
    raise TypeError(f"JSON has no form of {type(value).__qualname__}")


_json = msgspec.json.Encoder(enc_hook=_json_form)
