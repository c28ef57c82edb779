"""The acknowledgement of one record, for which a caller may wait."""

# Many are settled in one loop.
# ruff: noqa: SLF001

from __future__ import annotations

import asyncio
from itertools import count, repeat
from typing import TYPE_CHECKING, Final, final

import msgspec

from asyncrevoke.client.printable import error_text, printable
from asyncrevoke.client.producing.message import Published

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

# The offset before the response.
_PENDING: Final = -2


class _Watch:
    """The calls that wait for an acknowledgement, and what its end is reported to."""

    __slots__ = ("ended", "waiting")

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.ended: Callable[[Exception | None], None] | None = None

    def settle(self, error: Exception | None) -> None:
        """Resume the calls."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        if self.ended is not None:
            self.ended(error)


# Without a failure the garbage collector does not track it: it refers to text and numbers only.
@final
class Acknowledgement(msgspec.Struct, eq=False):
    """The acknowledgement of a record, which ``publish_soon`` returns.

    ``await`` it for the record's :class:`Published`: all in-sync replicas have the record. Raises
    PublishError if it was not published, and ConsumerClosedError if the producer was closed before.
    It may be awaited several times, and cancelling that cancels nothing else.
    """

    topic: str
    _partition: int = -1
    _offset: int = _PENDING
    _error: Exception | None = None
    _watch: _Watch | None = None
    # Whether a call has received the error, or has been cancelled that would have.
    _error_taken: bool = False

    def done(self) -> bool:
        """Whether the record is acknowledged, or has failed."""
        return self._offset != _PENDING or self._error is not None

    def __repr__(self) -> str:
        """The topic, and what has become of the record."""
        if self._error is not None:
            state = f"failed: {error_text(self._error)}"
        elif self._offset == _PENDING:
            state = "waiting"
        else:
            offset = "an unknown offset" if self._offset < 0 else f"offset {self._offset}"
            state = f"partition {self._partition}, {offset}"
        return printable(f"<Acknowledgement of a record for {self.topic}: {state}>")

    def __await__(self) -> Generator[object, None, Published]:
        if not self.done():
            waiting = self._watched().waiting
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            try:
                yield from future
            finally:
                waiting.remove(future)
        if self._error is not None:
            self._error_taken = True
            # Several records have the same error: each time with the traceback of one call.
            raise self._error.with_traceback(None)
        return Published(self.topic, self._partition, self._offset)

    def report_end(self, ended: Callable[[Exception | None], None]) -> None:
        """Call ``ended`` once, with the error or None."""
        self._watched().ended = ended

    def take_error(self) -> Exception | None:
        """The error that no call has received; the next time None."""
        error = None if self._error_taken else self._error
        self._error_taken = True
        return error

    @property
    def is_waited_for(self) -> bool:
        """Whether a call waits, or has not been resumed yet."""
        return self._watch is not None and bool(self._watch.waiting)

    @property
    def is_error_taken(self) -> bool:
        """Whether a call has received the error, or will if it is not cancelled."""
        return self._error_taken or self.is_waited_for

    @staticmethod
    def acknowledge(records: Iterable[Acknowledgement], partition: int, offset: int) -> None:
        """Records were written, the first one at ``offset``, which is negative if unknown."""
        offsets = repeat(-1) if offset < 0 else count(offset)
        for record, written in zip(records, offsets):  # noqa: B905 - offsets do not end
            record._partition = partition
            record._offset = written
            if record._watch is not None:
                record._watch.settle(None)

    def fail(self, error: Exception) -> None:
        """The record was not written, or it is unknown whether it was."""
        self._error = error
        if self._watch is not None:
            self._watch.settle(error)

    def _watched(self) -> _Watch:
        if self._watch is None:
            self._watch = _Watch()
        return self._watch
