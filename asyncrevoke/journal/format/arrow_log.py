"""Logs of earlier versions: streams of Arrow's record batches, without checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.journal.format.arrow import Array, RecordBatch, Source, pa, pc
from asyncrevoke.journal.format.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE_COLUMNS: Final = ("session_id", "group")


def read_arrow(source: Source) -> tuple[list[RecordBatch], str | None]:
    """Return all complete batches, and why the end cannot be read (None if it can)."""
    batches: list[RecordBatch] = []
    try:
        with pa.ipc.open_stream(source) as stream:
            metadata = stream.schema.metadata
            batches.extend(_decoded(batch, metadata) for batch in stream)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return batches, f"its end is torn: {error}"
    return batches, None


def _decoded(batch: RecordBatch, metadata: Mapping[bytes, bytes] | None) -> RecordBatch:
    known = metadata or {}
    arrays: list[Array] = []
    for field in SCHEMA:
        if field.name in _FILE_COLUMNS:
            value = known.get(field.name.encode())
            text = None if value is None else value.decode()
            arrays.append(pa.repeat(pa.scalar(text, pa.string()), batch.num_rows))
        else:
            # Earlier versions had fewer columns, and encoded some of them in runs.
            if batch.schema.get_field_index(field.name) < 0:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(field.name)
            if pa.types.is_run_end_encoded(column.type):
                column = pc.call_function("run_end_decode", [column])
            arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
