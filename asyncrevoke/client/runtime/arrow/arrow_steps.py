"""The steps of a consumer as Arrow batches."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.client.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch
    from asyncrevoke.client.columns.poll_columns import PollColumns
    from asyncrevoke.client.core.poll.large_polls import LargePoll
    from asyncrevoke.client.model import PollResult, Record, TopicPartition
    from asyncrevoke.client.runtime.arrow.arrow_options import ArrowOptions


class ArrowBatch:
    """The result of one step of :meth:`Consumer.arrow_batches`.

    ``records`` is a ``pyarrow.RecordBatch`` that owns its memory, without rows if there are only
    news. ``to_be_revoked`` and ``lost`` are those of a :class:`PollResult`. It unpacks as
    ``records, to_be_revoked, lost``.
    """

    __slots__ = ("lost", "records", "slices", "to_be_revoked")

    def __init__(
        self,
        records: ArrowRecordBatch,
        to_be_revoked: frozenset[TopicPartition],
        lost: frozenset[TopicPartition],
        slices: Sequence[Sequence[Record]],
    ) -> None:
        # pyarrow has no types.
        self.records: Any = records
        self.to_be_revoked = to_be_revoked
        self.lost = lost
        # What acknowledging it completes.
        self.slices = slices

    def __iter__(self) -> Iterator[Any]:
        yield self.records
        yield self.to_be_revoked
        yield self.lost

    def __repr__(self) -> str:
        return (
            f"ArrowBatch(records=<{self.records.num_rows}>, "
            f"to_be_revoked={sorted(self.to_be_revoked)}, lost={sorted(self.lost)})"
        )


class ColumnSession(Protocol):
    """A session that decodes to columns. Implemented by ``Session``."""

    uses_threads: bool

    @property
    def is_observed(self) -> bool:
        """Whether observers get the records of each step."""
        ...

    def decode_columns(
        self,
        names: Sequence[str],
        at_once: int,
        topics: Callable[[str], bool] | None = None,
    ) -> None:
        """Decode records of these topics (None: of all) to rows of columns from now on, and buffer
        enough for steps that return ``at_once`` records."""

    async def step(self, *, large: LargePoll) -> PollResult | None:
        """One step; None when the consumer is stopping."""
        ...


class ArrowSteps:
    """Makes Arrow batches of the steps of a session."""

    def __init__(self, session: ColumnSession, options: ArrowOptions) -> None:
        self._session = session
        self._options = options
        self._columns: PollColumns | None = None

    async def prepare(self) -> LargePoll:
        """What the steps are to return. The first call imports what columns need and compiles
        loops, in a thread; if it is cancelled, the thread goes on. Not in a thread in a test, in
        which time is virtual."""
        if self._columns is None:
            names = self._options.columns
            if self._session.uses_threads:
                self._columns = await asyncio.to_thread(_columns, names)
            else:
                self._columns = _columns(names)
            self._session.decode_columns(names, self._options.poll.records)
        return self._options.poll

    def batches(self, step: PollResult) -> deque[ArrowBatch]:
        """The batches of a step, after :meth:`prepare`: at least one. A loss comes with the first
        one, an announced revocation with the last one, when all rows were returned."""
        if self._columns is None:
            raise IllegalStateError("prepare() was not called")
        slices = list(step.by_partition().values())
        records = self._columns.of(slices)
        if not self._session.is_observed:
            self._columns.release(slices)
        nothing: frozenset[TopicPartition] = frozenset()
        found = deque(ArrowBatch(each, nothing, nothing, ()) for each in records)
        found[0].lost = step.lost
        found[-1].to_be_revoked, found[-1].slices = step.to_be_revoked, slices
        return found


def _columns(names: Sequence[str]) -> PollColumns:
    from asyncrevoke.client.columns.poll_columns import PollColumns, compile_loops

    compile_loops(names)
    return PollColumns(names)


class ArrowIterator:
    """The Arrow batches of a consumer (``async for batch in ...``). One step at a time."""

    def __init__(self, session: ColumnSession, options: ArrowOptions) -> None:
        self._session = session
        self._steps = ArrowSteps(session, options)
        # The rest of the last step.
        self._left: deque[ArrowBatch] = deque()
        # Why the rows of a step became no batch: another step would count them as done.
        self._failure: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ArrowBatch:
        if self._failure is not None:
            raise self._failure
        if not self._left:
            large = await self._steps.prepare()
            step = await self._session.step(large=large)
            if step is None:
                raise StopAsyncIteration
            try:
                self._left = self._steps.batches(step)
            except Exception as error:
                self._failure = error
                raise
        return self._left.popleft()
