"""Reads logs of earlier versions: streams of Arrow record batches, without checksums.

The files are untrusted. Arrow decompresses columns and decodes runs to any size that the file
declares, so this module checks both first: earlier versions did not compress, and wrote more than
four bytes per row.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.arrow import Array, RecordBatch, pa, pc
from asyncrevoke.journal.format.row_memory import ROW_BYTES
from asyncrevoke.journal.format.rows import COMPACT_SCHEMA, SCHEMA, nulls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from asyncrevoke.journal.format.row_memory import RowMemory

_FILE_COLUMNS: Final = ("session_id", "group")
# Segments end at 64 MiB unless segment_bytes says otherwise.
_LARGEST: Final = 2**28
_LEAST_ROW: Final = 4
# Limit for the bytes of a column after its runs are decoded.
_LARGEST_COLUMN: Final = 2**28
_TOO_LARGE: Final = "it is larger than a journal writes"
# Fields of Arrow's tables Message and RecordBatch (Message.fbs).
_HEADER: Final = 2
_LENGTH: Final = 0
_COMPRESSION: Final = 3


class ArrowLog(NamedTuple):
    """All complete batches, and why the rest cannot be read: ``torn`` if the file ends within a
    batch or a batch cannot be decoded, ``damaged`` if no version has written such a batch."""

    batches: list[RecordBatch]
    torn: str | None = None
    damaged: str | None = None


class _NeverWrittenError(Exception):
    """No version has written such a batch."""


def read_arrow(file: BinaryIO, path: Path, memory: RowMemory, *, compact: bool = False) -> ArrowLog:
    """Read a log of limited size. Raises ConfigError, which names ``path``, if its rows exceed
    ``memory``. With ``compact``, columns of texts are dictionaries."""
    blob = file.read(_LARGEST + 1)
    if not blob:
        return ArrowLog([], "it is empty")
    if len(blob) > _LARGEST:
        return ArrowLog([], None, _TOO_LARGE)
    batches: list[RecordBatch] = []
    try:
        for batch in _batches(blob, path, memory, compact=compact):
            memory.add(batch, path)
            batches.append(batch)
    except _NeverWrittenError as error:
        return ArrowLog(batches, None, str(error))
    except ConfigError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, struct.error) as error:
        return ArrowLog(batches, f"its end is torn: {error}")
    return ArrowLog(batches)


def _batches(blob: bytes, path: Path, memory: RowMemory, *, compact: bool) -> Iterator[RecordBatch]:
    reader: Any = pa.ipc.MessageReader.open_stream(pa.BufferReader(blob))  # half typed
    first = next(reader, None)
    if first is None or first.type != "schema":
        raise _NeverWrittenError("it does not begin with a schema")
    schema = pa.ipc.read_schema(first)
    for message in reader:
        if message.type != "record batch":
            raise _NeverWrittenError(f"it has a {message.type}")
        rows, compressed = _declared(message.metadata.to_pybytes())
        if compressed:
            raise _NeverWrittenError("it is compressed, and no version writes compressed logs")
        if not 0 <= rows * _LEAST_ROW <= message.body.size:
            raise _NeverWrittenError(_TOO_LARGE)
        memory.check(rows * ROW_BYTES, path)
        batch = pa.ipc.read_record_batch(message, schema)
        # Arrow otherwise uses lengths and offsets of the file unchecked.
        batch.validate(full=True)
        yield _decoded(batch, schema.metadata, compact=compact)


def _declared(metadata: bytes) -> tuple[int, bool]:
    """The number of rows of a record batch, and whether its columns are compressed."""
    (message,) = struct.unpack_from("<I", metadata)
    header = _position(metadata, message, _HEADER)
    if header is None:
        raise ValueError("a message has no header")
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    length = _position(metadata, batch, _LENGTH)
    rows = 0 if length is None else struct.unpack_from("<q", metadata, length)[0]
    return rows, _position(metadata, batch, _COMPRESSION) is not None


def _position(data: bytes, table: int, field: int) -> int | None:
    """The position of a field in a flatbuffers table; None if the table does not have the field."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * field
    if entry >= struct.unpack_from("<H", data, fields)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, fields + entry)[0]
    return table + offset if offset else None


def _decoded(
    batch: RecordBatch, metadata: Mapping[bytes, bytes] | None, *, compact: bool
) -> RecordBatch:
    known = metadata or {}
    arrays: list[Array] = []
    column: Any
    schema = COMPACT_SCHEMA if compact else SCHEMA
    for field in SCHEMA:
        if field.name in _FILE_COLUMNS:
            value = known.get(field.name.encode())
            text = None if value is None else value.decode()
            if text is not None and len(text) * batch.num_rows > _LARGEST_COLUMN:
                raise _NeverWrittenError(_TOO_LARGE)
            column = pa.repeat(pa.scalar(text, pa.string()), batch.num_rows)
        else:
            # Earlier versions had fewer columns, and encoded some of them in runs.
            if batch.schema.get_field_index(field.name) < 0:
                arrays.append(nulls(batch.num_rows, schema.field(field.name).type))
                continue
            column = batch.column(field.name)
            in_runs = pa.types.is_run_end_encoded(column.type)
            if (column.type.value_type if in_runs else column.type) != field.type:
                raise _NeverWrittenError(f"its column {field.name} is of the type {column.type}")
            if in_runs:
                _check_runs(column)
                column = pc.call_function("run_end_decode", [column])
        is_text = pa.types.is_string(field.type)
        arrays.append(column.dictionary_encode() if compact and is_text else column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_runs(column: Any) -> None:  # noqa: ANN401 - half typed
    """Reject runs of texts that decode to a larger column than a journal writes."""
    if not pa.types.is_string(column.values.type):
        return
    size = begin = 0
    lengths = pc.call_function("binary_length", [column.values]).to_pylist()
    for end, length in zip(column.run_ends.to_pylist(), lengths, strict=True):
        size += (end - begin) * (length or 0)
        begin = end
    if size > _LARGEST_COLUMN:
        raise _NeverWrittenError(_TOO_LARGE)
