"""Resizes Arrow batches to bound the memory of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.spark.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.spark.arrow import ArrowRecordBatch

TARGET_BYTES: Final = 4 * 1024 * 1024


def resized(
    batches: Iterable[ArrowRecordBatch], most: int = TARGET_BYTES
) -> Iterator[ArrowRecordBatch]:
    """The same rows in the same order: joins small batches and splits large ones.

    A resulting batch has fewer than twice ``most`` bytes, or a single row.
    """
    waiting: list[ArrowRecordBatch] = []
    size = 0
    for batch in batches:
        for part in _split(batch, most):
            waiting.append(part)
            size += part.nbytes
            if size >= most:
                yield _joined(waiting)
                waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _split(batch: ArrowRecordBatch, most: int) -> Iterator[ArrowRecordBatch]:
    """The same rows in slices of at most ``most`` bytes, or of a single row. Copies no content."""
    rows = batch.num_rows
    if batch.nbytes <= most or rows < 2:
        if rows:
            yield batch
        return
    yield from _split(batch.slice(0, rows // 2), most)
    yield from _split(batch.slice(rows // 2), most)


def _joined(batches: list[ArrowRecordBatch]) -> ArrowRecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return cast("ArrowRecordBatch", joined)
