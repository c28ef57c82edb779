"""Parts the rows of an Arrow batch by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.client.columns.arrow import ArrowRecordBatch, pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class RowRun(NamedTuple):
    """Rows of one partition, whose offsets go from ``first`` to ``last``."""

    partition: int
    first: int
    last: int
    rows: ArrowRecordBatch


def rows_by_partition(
    records: Any,  # noqa: ANN401 - pyarrow has no types
    columns: Sequence[str],
    stops: Mapping[int, int],
) -> Iterator[RowRun]:
    """The rows of a batch that has the columns ``partition`` and ``offset``, with ``columns`` only;
    of the partitions in ``stops`` only rows before that offset.

    Rows of several partitions are copied: a few of them keep no large batch in memory.
    """
    import numpy as np

    if not records.num_rows:
        return
    partitions = records.column("partition").to_numpy()
    offsets = records.column("offset").to_numpy()
    begins = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist()]
    chosen = records.select(columns)
    for begin, stop in zip(begins, [*begins[1:], records.num_rows], strict=True):
        end = stop
        if (last := stops.get(int(partitions[begin]))) is not None:
            end = begin + int(np.searchsorted(offsets[begin:stop], last))
        if end == begin:
            continue
        rows = chosen.slice(begin, end - begin)
        if len(begins) > 1:
            # To join several batches copies them; to join one does not.
            rows = pa.concat_batches([rows, rows.slice(0, 0)])
        yield RowRun(int(partitions[begin]), int(offsets[begin]), int(offsets[end - 1]), rows)
