"""Runs handlers on rows that Spark has read, for the engines ``source`` and ``jvm``."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from importlib import invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from asyncrevoke.client.columns.arrow import Array, ArrowRecordBatch, pa, pc
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record, UnreadableRecord
from asyncrevoke.client.protocol.content_limits import (
    MAX_ADDED_HEADERS,
    MAX_RECORD_HEADERS,
    TOO_MANY_HEADERS,
    has_too_many_headers,
)
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.worker import PythonWorker
from asyncrevoke.spark.replays.range_task import UNKNOWN, HandlersTask

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence


# Bytes of all files: each task has them.
_MOST_BYTES: Final = 64 * 1024 * 1024

# The folders of this process, which are removed when it ends.
_installed: dict[SentFiles, TemporaryDirectory[str]] = {}


class SentFiles(NamedTuple):
    """Modules (``.py``) and archives of packages (``.zip``, ``.egg``), each with its content.

    Spark Connect sends ``py_files`` to the workers of a query, and not to those of a streaming
    query (Spark 4.2).
    """

    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def read(cls, paths: Sequence[str]) -> SentFiles:
        """Read these files. Raises ConfigError if one cannot be read, or if they are too large."""
        files: list[tuple[str, bytes]] = []
        left = _MOST_BYTES
        for path in map(Path, paths):
            if path.exists() and not path.is_file():  # reading a pipe would wait
                raise ConfigError(f"py_files: {path} is not a regular file")
            try:
                with path.open("rb") as file:
                    content = file.read(left + 1)
            except OSError as error:
                raise ConfigError(f"py_files: {path} cannot be read: {error.strerror}") from error
            left -= len(content)
            if left < 0:
                raise ConfigError(
                    f"py_files have more than {_MOST_BYTES // 2**20} MiB: install the application "
                    "where the workers run"
                )
            files.append((path.name, content))
        return cls(tuple(files))

    def install(self) -> None:
        """Make them importable in this process."""
        if not self.files or self in _installed:
            return
        temporary = _installed[self] = TemporaryDirectory(prefix="asyncrevoke-")
        folder = Path(temporary.name)
        for name, content in self.files:
            (folder / name).write_bytes(content)
            place = str(folder if name.endswith(".py") else folder / name)
            if place not in sys.path:
                sys.path.append(place)
        invalidate_caches()


_PLAIN = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value")
COLUMNS = (*_PLAIN, "headers", "unreadable")
"""The columns of the rows; ``timestamp`` is in milliseconds. A row whose ``unreadable`` (next
offset, reason) is not null is a record that cannot be read."""


@dataclass(eq=False)
class RowsTask(HandlersTask):
    """Spark's ``mapInArrow`` calls it in each task, with the rows of one range in the order of
    offsets.

    ``ranges`` is None in a stream, where a task learns its range from its first row. ``files`` are
    those that Spark does not send.
    """

    ranges: Sequence[OffsetRange] | None
    _: KW_ONLY
    files: SentFiles | None = None

    def __call__(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """The result rows."""
        coming = (part for batch in batches if batch.num_rows for part in to_records(batch))
        first = next(coming, None)
        if first is not None:
            yield from self._run(first, coming)

    def _run(
        self, first: list[Record], coming: Iterator[list[Record]]
    ) -> Generator[ArrowRecordBatch]:
        wanted = self._range_of(first[0])
        if self.files is not None:
            self.files.install()
        worker = PythonWorker.current()
        opened = worker.open(self.target)
        outcomes = self.result_rows()
        waiting: list[list[Record]] = [first]
        # Reading Spark's rows blocks, and the event loop runs the handlers.
        thread = ThreadPoolExecutor(1, thread_name_prefix="asyncrevoke rows")

        async def read() -> Sequence[Record]:
            if waiting:
                return waiting.pop()
            loop = asyncio.get_running_loop()
            records = await loop.run_in_executor(thread, next, coming, None)
            if records and records[0].topic_partition != wanted.topic_partition:
                raise ReplayError(
                    f"a task has rows of partition {records[0].partition} after rows of "
                    f"{wanted.partition}: do not repartition the rows of a replay"
                )
            return cast("Sequence[Record]", records or ())

        async def handle() -> None:
            await self.handle_range(opened, wanted, read, outcomes)

        try:
            yield from self.emit(worker, handle, outcomes, wanted)
        finally:
            thread.shutdown(wait=False)

    def _range_of(self, record: Record) -> OffsetRange:
        if self.ranges is None:
            return OffsetRange(record.topic, record.partition, record.offset, UNKNOWN)
        for offset_range in self.ranges:
            if offset_range.topic_partition == record.topic_partition and (
                offset_range.start <= record.offset < offset_range.end
            ):
                return offset_range
        raise ReplayError(
            f"{record.topic}-{record.partition} at offset {record.offset} is in no range of this "
            "replay"
        )


def to_records(batch: ArrowRecordBatch) -> Iterator[list[Record]]:
    """Rows as records, in lists of which only the last record may be unreadable.

    A record with more headers than a consumer accepts is unreadable. Its headers are never decoded.
    """
    headers = batch.column("headers")
    too_long = _too_long(headers)
    some_too_long: bool = pc.any(too_long).as_py() or False
    if some_too_long:
        headers = pc.if_else(too_long, pa.scalar(None, headers.type), headers)
    columns = [batch.column(name).to_pylist() for name in _PLAIN]
    records = [
        Record(
            topic, partition, offset, timestamp, kind, key, value,
            tuple((pair["key"], pair["value"]) for pair in pairs or ()),
        )
        for topic, partition, offset, timestamp, kind, key, value, pairs in zip(
            *columns, headers.to_pylist(), strict=True
        )
    ]  # fmt: skip
    unreadable = batch.column("unreadable")
    if not some_too_long and unreadable.null_count == len(records):
        yield records
        return
    start = 0
    for number, (why, long) in enumerate(
        zip(unreadable.to_pylist(), too_long.to_pylist(), strict=True)
    ):
        if why is not None:
            records[number] = _unreadable(records[number], why["next_offset"], why["reason"])
        elif long:
            records[number] = _unreadable(
                records[number], records[number].offset + 1, TOO_MANY_HEADERS
            )
        else:
            continue
        yield records[start : number + 1]
        start = number + 1
    if start < len(records):
        yield records[start:]


def _too_long(headers: Array) -> Array:
    """Which records have too many headers. Only the names of those near the limit are decoded."""
    lengths = pc.list_value_length(headers)
    too_long: Array = pc.greater(lengths, MAX_RECORD_HEADERS + MAX_ADDED_HEADERS)
    near = pc.and_(pc.greater(lengths, MAX_RECORD_HEADERS), pc.invert(too_long))
    if not pc.any(near).as_py():
        return too_long
    found = too_long.to_pylist()
    for number in cast("list[int]", pc.indices_nonzero(near).to_pylist()):
        names: list[str | None] = cast("Any", headers)[number].values.field("key").to_pylist()
        found[number] = has_too_many_headers([name or "" for name in names])
    return cast("Array", pa.array(found, pa.bool_()))


def _unreadable(record: Record, next_offset: int, reason: str) -> UnreadableRecord:
    return UnreadableRecord(
        *record.topic_partition, record.offset, -1, 0, None, None,
        next_offset=next_offset, detail=reason,
    )  # fmt: skip
