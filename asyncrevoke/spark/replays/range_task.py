"""A Spark task that reads ranges and runs the handlers on their records."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.columns.arrow import Array, ArrowRecordBatch, DataType, Schema, pa, pc
from asyncrevoke.client.printable import named_error
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.dead_letters.origin_reader import OriginReader
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.range_source import NextRecords, handle_all
from asyncrevoke.replays.result_rows import FastPathRows, ResultRows, Row
from asyncrevoke.spark.errors import DataLossError, StalledReadError
from asyncrevoke.spark.reading.range_reader import RangeReader
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.replays.progress import Address, ProgressReporter

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence

    from asyncrevoke.client.config import IsolationLevel
    from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
    from asyncrevoke.replays.opened_handlers import OpenedHandlers, Target
    from asyncrevoke.spark.reading.offsets import OffsetRange

# In Spark's notation, whose types are these of Arrow.
_TYPES: dict[str, DataType] = {
    "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
}  # fmt: skip
_PLACE = "topic string, partition int, offset bigint"
_COLUMNS = (
    f"{_PLACE}, range_start bigint, range_end bigint, task_attempt int, attempts int, "
    "started_us bigint, finished_us bigint, outcome string, error_type string, error string, "
    "result binary"
)
RESULT_SCHEMA = f"{_COLUMNS}, origin struct<{_PLACE}>"
"""The columns of a replay's rows, without ``run_id``, which is in the name of their folder."""


def _fields(columns: str) -> list[tuple[str, DataType]]:
    return [(name, _TYPES[kind]) for name, kind in map(str.split, columns.split(", "))]


_ORIGIN = pa.struct(_fields(_PLACE))
_ARROW: Schema = pa.schema([*_fields(_COLUMNS), ("origin", _ORIGIN)])
UNKNOWN = -1
"""The end of a range whose end is not known yet. It is null in rows."""

_ROWS = 8_000
_MAX_WAIT = 0.5


@dataclass(eq=False)
class HandlersTask:
    """What a task needs that runs handlers. Pickled by reference: the worker imports its class."""

    target: Target
    _: KW_ONLY
    max_errors: int | None = None
    report_to: Address | None = None
    dead_letters: DeadLetterFilter | None = None

    def result_rows(self) -> ResultRows:
        """An empty buffer for the result rows of one task."""
        origins = self.dead_letters is not None
        return ResultRows(EventLog().of_application(), self.target.failed_as, origins=origins)

    async def handle_range(
        self, opened: OpenedHandlers, wanted: OffsetRange, read: NextRecords, outcomes: ResultRows
    ) -> None:
        """Run the handlers on all records of ``read``. With ``dead_letters``, run them on the
        original records of the selected dead letters."""
        if self.dead_letters is None:
            await handle_all(opened, wanted.topic_partition, read, outcomes)
            return
        strict = self.target.errors == "fail"
        origins = OriginReader(read, self.dead_letters, opened, outcomes, strict=strict)
        await handle_all(opened, None, origins.read, outcomes)

    def emit(
        self,
        worker: PythonWorker,
        handle: Callable[[], Awaitable[None]],
        outcomes: ResultRows,
        wanted: OffsetRange,
    ) -> Generator[ArrowRecordBatch]:
        """Arrow batches of result rows, while ``handle`` runs on the worker's event loop.

        Raises ReplayError for too many errors or on the driver's request, and the error of
        ``handle``.
        """
        attempt = task_attempt()

        async def run() -> None:
            try:
                await handle()
            finally:
                outcomes.end()

        job = worker.start(run())
        with ProgressReporter(self.report_to, wanted) as reporter:
            try:
                while True:
                    ended = job.done()
                    taken = worker.run(outcomes.rows(_ROWS, _MAX_WAIT))
                    reporter.report(outcomes.done, outcomes.errors)
                    if self.max_errors is not None and outcomes.errors > self.max_errors:
                        raise ReplayError(too_many_errors(self.max_errors, outcomes))
                    if reporter.stopped:
                        raise ReplayError(reporter.stopped)
                    if taken.quick:
                        yield fast_path_to_arrow(taken.quick, wanted, attempt)
                    if taken.rows:
                        yield to_arrow(taken.rows, wanted, attempt)
                    if ended:
                        break
                reporter.report(outcomes.done, outcomes.errors, at_once=True)
                failure = job.exception()
                if failure is not None:
                    raise _task_error(failure, outcomes) from failure
            finally:
                job.cancel()


@dataclass(eq=False)
class RangeTask(HandlersTask):
    """Spark's ``mapInArrow`` calls it in each task, with rows whose ``id`` is the index of a task
    in ``ranges``. The task replays these ranges one after another."""

    ranges: Sequence[Sequence[OffsetRange]]
    _: KW_ONLY
    isolation_level: IsolationLevel
    no_progress_timeout: float

    def __call__(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """The result rows of the ranges whose indices are in ``batches``."""
        for batch in batches:
            for number in cast("list[int]", batch.column("id").to_pylist()):
                for wanted in self.ranges[number]:
                    yield from self._run(wanted)

    def _run(self, wanted: OffsetRange) -> Generator[ArrowRecordBatch]:
        worker = PythonWorker.current()
        opened = worker.open(self.target)
        config = replace(opened.config, isolation_level=self.isolation_level)
        outcomes = self.result_rows()

        async def handle() -> None:
            reader = RangeReader(
                config, wanted, no_progress_timeout=self.no_progress_timeout, unreadable=True
            )
            async with reader:
                await self.handle_range(opened, wanted, reader.read, outcomes)

        yield from self.emit(worker, handle, outcomes, wanted)


def too_many_errors(max_errors: int, outcomes: ResultRows) -> str:
    """The message of a replay with too many errors."""
    return (
        f"more than max_errors={max_errors} records have failed, for example "
        f"{'; '.join(outcomes.examples)}. Correct the handler and run the same run_id again, which "
        "resumes the replay, or raise max_errors"
    )


def fast_path_to_arrow(quick: FastPathRows, wanted: OffsetRange, attempt: int) -> ArrowRecordBatch:
    """Arrow rows of records whose handler succeeded at the first attempt."""
    count = len(quick)
    no_text = pa.nulls(count, pa.string())
    rest = [
        pa.repeat(pa.scalar(1, pa.int32()), count),
        pc.divide(_int64s(quick.started), 1000),
        pc.divide(_int64s(quick.finished), 1000),
        pa.repeat(pa.scalar("ok"), count),
        no_text,
        no_text,
        pa.array(quick.results, pa.binary()),
        pa.nulls(count, _ORIGIN),
    ]
    return _batch(wanted, attempt, _int64s(quick.offsets), rest)


def to_arrow(rows: Sequence[Row], wanted: OffsetRange, attempt: int) -> ArrowRecordBatch:
    """Arrow rows of other records."""
    _, offsets, *rest = (list(column) for column in zip(*rows, strict=True))
    types = [field.type for field in _ARROW][-len(rest) :]
    columns = [pa.array(column, kind) for column, kind in zip(rest, types, strict=True)]
    return _batch(wanted, attempt, pa.array(offsets, pa.int64()), columns)


def _int64s(numbers: array[int]) -> Array:
    return cast(
        "Array",
        pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]),
    )


def _batch(
    wanted: OffsetRange, attempt: int, offsets: Array, rest: Sequence[Array]
) -> ArrowRecordBatch:
    count = len(offsets)
    end = None if wanted.end == UNKNOWN else wanted.end
    columns = [
        pa.repeat(pa.scalar(wanted.topic), count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        offsets,
        pa.repeat(pa.scalar(wanted.start, pa.int64()), count),
        pa.repeat(pa.scalar(end, pa.int64()), count),
        pa.repeat(pa.scalar(attempt, pa.int32()), count),
        *rest,
    ]
    return cast("ArrowRecordBatch", pa.RecordBatch.from_arrays(columns, schema=_ARROW))


def task_attempt() -> int:
    """The attempt number of this Spark task, from 0; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _task_error(failure: BaseException, outcomes: ResultRows) -> Exception:
    if isinstance(failure, (ReplayError, DataLossError, StalledReadError)):
        return failure
    what = named_error(failure)
    if outcomes.stopped_at is not None:
        what += f" (while {outcomes.stopped_at} was handled)"
    return ReplayError(f"the replay has failed: {what}")
