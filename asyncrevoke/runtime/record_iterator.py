"""Records one by one: each is done when the next is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.model import PollResult, Record


class Steps(Protocol):
    """What records are taken from."""

    async def poll(self) -> PollResult:
        """One step; StopAsyncIteration at the end."""
        ...

    def submit(self, record: Record) -> bool:
        """Hold a record, unless its partition is gone."""
        ...

    def complete(self, record: Record) -> bool:
        """It is done."""
        ...


class RecordIterator:
    """An async iterator over single records. Cancelling ``__anext__`` loses none of them."""

    def __init__(self, steps: Steps, *, counts: bool) -> None:
        self._steps = steps
        # In the other commit modes the user says what is done.
        self._counts = counts
        self._records: Iterator[Record] = iter(())
        self._last: Record | None = None

    def __aiter__(self) -> RecordIterator:
        return self

    async def __anext__(self) -> Record:
        if self._last is not None:
            self._steps.complete(self._last)
            self._last = None
        while True:
            for record in self._records:
                if not self._counts:
                    return record
                # A partition that was lost meanwhile is not ours to handle any more.
                if self._steps.submit(record):
                    self._last = record
                    return record
            self._records = iter((await self._steps.poll()).records)
