"""Converts batches of a log to Arrow record batches with the columns of ``schema.COLUMNS``."""

from __future__ import annotations

import os
import struct
import sys
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.arrow import Array, DataType, RecordBatch, pa, pc
from asyncrevoke.journal.format.columns import (
    CODES,
    MOST_TEXT,
    TYPES,
    WIDTHS,
    RowBatch,
    Runs,
    Value,
    text_size,
)
from asyncrevoke.journal.format.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from asyncrevoke.journal.format.frames import FrameReader

_TYPES: dict[str, Any] = {"string": pa.string(), "long": pa.int64(), "int": pa.int32()}

SCHEMA = pa.schema([pa.field(column.name, _TYPES[column.type]) for column in COLUMNS])
# Stores each text once for all rows of a batch.
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
COMPACT_SCHEMA = pa.schema(
    [
        pa.field(field.name, DICTIONARY if field.type == pa.string() else field.type)
        for field in SCHEMA
    ]
)
_nulls: dict[Any, Array] = {}


def nulls(rows: int, kind: DataType) -> Array:
    """A column of nulls. Columns of one type share their memory."""
    known = _nulls.get(kind)
    if known is None or len(known) < rows:
        known = _nulls[kind] = pa.nulls(max(rows, 2**16), kind)
    return known.slice(0, rows)


def with_texts(batch: RecordBatch, columns: Mapping[str, str | None]) -> RecordBatch:
    """The batch, with one text in all rows of each of these columns. None changes no row."""
    for name, text in columns.items():
        if text is not None:
            at = batch.schema.get_field_index(name)
            field = batch.schema.field(at)
            texts = pa.DictionaryArray.from_arrays(_int32([0] * batch.num_rows), _texts([text]))
            column = texts if field.type == DICTIONARY else texts.dictionary_decode()
            batch = batch.set_column(at, field, column)
    return batch


def record_batches(reader: FrameReader, rows: int, *, compact: bool = False) -> Iterator[Any]:
    """The rows of a log as Arrow record batches of about ``rows`` rows, fewer if texts are long.
    With ``compact``, columns of texts are dictionaries, which take less memory."""
    some = _Rows()
    for batch in reader.batches():
        size = text_size(batch.columns)
        if some.count and (some.count + batch.rows > rows or some.text_size + size > MOST_TEXT):
            yield _made(some, reader, compact=compact)
            some = _Rows()
        some.add(batch, size)
    if some.count:
        yield _made(some, reader, compact=compact)


def _made(some: _Rows, reader: FrameReader, *, compact: bool) -> RecordBatch:
    header = reader.header
    session, group = (None, None) if header is None else (header.session, header.group)
    return some.taken(session, group, compact=compact)


# This module creates arrays from buffers, because pa.array() with a list imports pandas if it is
# installed, which takes 0.3 s.


class _Rows:
    """Collects the rows of several batches, by column."""

    def __init__(self) -> None:
        self.count = 0
        self.text_size = 0
        self._numbers: list[tuple[int, int]] = []
        self._columns: dict[str, _Numbers | _Texts] = {
            name: _Texts() if kind == "string" else _Numbers(kind) for name, kind in TYPES.items()
        }

    def add(self, batch: RowBatch, text_size: int) -> None:
        """Add a batch of checked columns."""
        start, columns = self.count, self._columns
        self._numbers.append((batch.first, batch.rows))
        of_all = batch.columns
        for name, data in of_all.plain.items():
            column = columns[name]
            assert isinstance(column, _Numbers)
            column.put(start, data, batch.rows, of_all.present.get(name))
        for name, runs in of_all.runs.items():
            columns[name].put_runs(start, runs)
        self.count += batch.rows
        self.text_size += text_size

    def taken(self, session: str | None, group: str | None, *, compact: bool) -> RecordBatch:
        """All rows as one Arrow record batch."""
        seq = array("q")
        for first, rows in self._numbers:
            seq.extend(range(first, first + rows))
        numbers = pa.Array.from_buffers(pa.int64(), self.count, [None, pa.py_buffer(seq)])
        made: dict[str, Array] = {"seq": numbers}
        for name, value in (("session_id", session), ("group", group)):
            texts = _Texts()
            texts.put_runs(0, ([value], [self.count]))
            made[name] = texts.array(self.count, compact=compact)
        for name, column in self._columns.items():
            made[name] = column.array(self.count, compact=compact)
        return pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], SCHEMA.names)


class _Runs:
    """Values, and the number of rows of each."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._lengths: list[int] = []
        self._rows = 0

    def _extend(self, value: Value, rows: int) -> None:
        self._rows += rows
        if self._values and self._values[-1] == value:
            self._lengths[-1] += rows
        else:
            self._values.append(value)
            self._lengths.append(rows)


class _Numbers(_Runs):
    """A column of numbers. Rows without a value are null. The runs say which rows have a value."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._type = _TYPES[kind]
        self._width = WIDTHS[kind]
        self._pack = struct.Struct("<" + CODES[kind]).pack
        self._null = bytes(self._width)
        self._parts: list[bytes] = []

    def _leave_out_until(self, start: int) -> None:
        if start > self._rows:
            missing = start - self._rows
            self._parts.append(self._null * missing)
            self._extend(False, missing)

    def put(self, start: int, data: bytes, rows: int, present: bytes | None) -> None:
        """Add a plain column of a batch."""
        self._leave_out_until(start)
        self._parts.append(data)
        if present is None:
            self._extend(True, rows)
            return
        bits = int.from_bytes(present, "little")
        for row in range(rows):
            self._extend(bool(bits >> row & 1), 1)

    def put_runs(self, start: int, runs: Runs) -> None:
        """Add a column of runs of a batch."""
        self._leave_out_until(start)
        for value, rows in zip(*runs, strict=True):
            self._parts.append((self._null if value is None else self._pack(value)) * rows)
            self._extend(value is not None, rows)

    def array(self, rows: int, *, compact: bool) -> Array:  # noqa: ARG002 - as _Texts.array()
        """The column."""
        if True not in self._values:
            return nulls(rows, self._type)
        self._leave_out_until(rows)
        data = b"".join(self._parts)
        if sys.byteorder == "big":
            swapped = array("q" if self._width == 8 else "i", data)
            swapped.byteswap()
            data = swapped.tobytes()
        validity = None if False not in self._values else _bits(self._values, self._lengths)
        return pa.Array.from_buffers(self._type, rows, [validity, pa.py_buffer(data)])


class _Texts(_Runs):
    """A column of texts. Rows without a value are null."""

    def put_runs(self, start: int, runs: Runs) -> None:
        """Add a column of runs of a batch."""
        if start > self._rows:
            self._extend(None, start - self._rows)
        for value, rows in zip(*runs, strict=True):
            self._extend(value, rows)

    def array(self, rows: int, *, compact: bool) -> Array:
        """The column."""
        if rows > self._rows:
            self._extend(None, rows - self._rows)
        kind = DICTIONARY if compact else pa.string()
        if all(value is None for value in self._values):
            return nulls(rows, kind)
        different = list(dict.fromkeys(str(v) for v in self._values if v is not None))
        numbers = {text: number for number, text in enumerate(different)}
        known = [value is not None for value in self._values]
        of_runs = [0 if value is None else numbers[str(value)] for value in self._values]
        indices = _decoded(_int32(of_runs), self._lengths)
        if not all(known):
            validity = _bits(known, self._lengths)
            indices = pa.Array.from_buffers(pa.int32(), rows, [validity, indices.buffers()[1]])
        texts = pa.DictionaryArray.from_arrays(indices, _texts(different))
        return texts if compact else texts.dictionary_decode()


def _int32(numbers: Sequence[int]) -> Array:
    buffers = [None, pa.py_buffer(array("i", numbers))]
    return pa.Array.from_buffers(pa.int32(), len(numbers), buffers)


def _decoded(values: Array, lengths: Sequence[int]) -> Array:
    ends = list(accumulate(lengths))
    kind = pa.run_end_encoded(pa.int32(), values.type)
    children = [_int32(ends), values]
    runs = pa.RunEndEncodedArray.from_buffers(
        kind, ends[-1], [None], null_count=0, children=children
    )
    return pc.call_function("run_end_decode", [runs])


def _bits(known: Sequence[object], lengths: Sequence[int]) -> Any:  # noqa: ANN401
    number = sum(1 << index for index, candidate in enumerate(known) if candidate)
    size = (len(known) + 7) // 8
    packed = pa.py_buffer(number.to_bytes(size, "little"))
    values = pa.Array.from_buffers(pa.bool_(), len(known), [None, packed])
    return _decoded(values, lengths).buffers()[1]


def _texts(texts: Sequence[str]) -> Array:
    every = [text.encode() for text in texts]
    ends = array("i", [0, *accumulate(map(len, every))])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(every))]
    return pa.Array.from_buffers(pa.string(), len(every), buffers)


# The limit if the system does not report the size of its memory.
_UNKNOWN: Final = 4 * 2**30
# Bytes of a row without its texts, each of which is stored once.
ROW_BYTES: Final = sum(8 if column.type == "long" else 4 for column in COLUMNS)


class RowMemory:
    """Counts the memory of all rows that are read, and rejects rows beyond the limit.

    A few bytes of a file can declare millions of rows. A row with a value in each column takes
    about 130 bytes.
    """

    def __init__(self, most: int | None = None) -> None:
        """``most`` is in bytes; the default is half of the machine's memory."""
        self._most = _half_of_memory() if most is None else most
        self._taken = 0

    def check(self, size: int, path: Path) -> None:
        """Raise ConfigError, which names the file, if ``size`` more bytes exceed the limit."""
        if self._taken + size > self._most:
            raise ConfigError(
                f"{path}: the rows of this journal exceed the limit of {self._most:,} bytes. "
                "Read fewer sessions at a time, or audit on Spark"
            )

    def add(self, batch: RecordBatch, path: Path) -> None:
        """Count rows that were read. Raises ConfigError, which names the file, beyond the limit."""
        size = sum(column.nbytes for column in batch.columns if column.null_count < len(column))
        self.check(size, path)
        self._taken += size


def _half_of_memory() -> int:
    names = getattr(os, "sysconf_names", {})  # Windows has none
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return _UNKNOWN
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
