"""Parts the rows of an Arrow batch by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.client.columns.arrow import ArrowRecordBatch, pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RowRun(NamedTuple):
    """Rows of one partition, whose offsets go from ``first`` to ``last``."""

    partition: int
    first: int
    last: int
    rows: ArrowRecordBatch


def rows_by_partition(records: Any, columns: Sequence[str]) -> Iterator[RowRun]:  # noqa: ANN401 - pyarrow has no types
    """The rows of a batch that has the columns ``partition`` and ``offset``, with ``columns`` only.

    Rows of several partitions are copied: a few of them keep no large batch in memory.
    """
    import numpy as np

    if not records.num_rows:
        return
    partitions = records.column("partition").to_numpy()
    offsets = records.column("offset").to_numpy()
    begins = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist()]
    chosen = records.select(columns)
    for begin, end in zip(begins, [*begins[1:], records.num_rows], strict=True):
        rows = chosen.slice(begin, end - begin)
        if len(begins) > 1:
            # To join several batches copies them; to join one does not.
            rows = pa.concat_batches([rows, rows.slice(0, 0)])
        yield RowRun(int(partitions[begin]), int(offsets[begin]), int(offsets[end - 1]), rows)
