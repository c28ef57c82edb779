"""The rows of one batch, by column, and their encoding in a log (MessagePack).

A column is *plain* (a little-endian number for each row) or in *runs* (values, and the number of
rows of each). Columns without values are omitted, and so are ``seq``, ``session_id`` and ``group``,
which the frame and the segment header have.
"""

from __future__ import annotations

import struct
import sys
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from asyncrevoke.journal.format.schema import COLUMNS

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

Value: TypeAlias = int | str | None
# Values, and the number of rows of each.
Runs: TypeAlias = tuple[list[Value], list[int]]

# Columns that the frame or the segment header has.
IMPLIED: Final = ("session_id", "seq", "group")
TYPES: Final = {column.name: column.type for column in COLUMNS if column.name not in IMPLIED}
WIDTHS: Final = {"long": 8, "int": 4}
CODES: Final = {"long": "q", "int": "i"}
# Limit for the characters of all rows of a batch. 16,384 rows with an error of 4,096 characters
# each have half as many.
MOST_TEXT: Final = 2**27


class ColumnArrays(msgspec.Struct, array_like=True):
    """The columns of a batch. ``present`` has a bit for each row of a plain column with nulls; the
    first row is the lowest bit of the first byte."""

    plain: dict[str, bytes]
    runs: dict[str, Runs]
    present: dict[str, bytes] = {}


class RowBatch(NamedTuple):
    """Consecutive rows. ``first`` is the number of the first row."""

    first: int
    rows: int
    columns: ColumnArrays


_decode = msgspec.msgpack.Decoder(ColumnArrays).decode


def encoded(columns: ColumnArrays) -> bytes:
    """Encode the columns."""
    return msgspec.msgpack.encode(columns)


def decoded(payload: bytes, rows: int) -> ColumnArrays:
    """Decode the columns of a batch of ``rows`` rows. Raises ValueError for invalid columns."""
    try:
        columns = _decode(payload)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.DecodeError as error:  # a ValueError in newer versions of msgspec alone
        raise ValueError(str(error)) from error
    for name, data in columns.plain.items():
        width = WIDTHS.get(TYPES.get(name, ""))
        if width is None or len(data) != rows * width:
            raise ValueError(f"column {name!r} has {len(data)} bytes for {rows} rows")
    for name, (values, lengths) in columns.runs.items():
        if name not in TYPES or name in columns.plain:
            raise ValueError(f"there is no column {name!r} in runs")
        if len(values) != len(lengths) or sum(lengths) != rows or any(n < 1 for n in lengths):
            raise ValueError(f"column {name!r} has runs that do not make {rows} rows")
        kind = TYPES[name]
        limit = 2 ** (8 * WIDTHS.get(kind, 8) - 1)
        for value in values:
            fits = isinstance(value, str) if kind == "string" else _is_within(value, limit)
            if value is not None and not fits:
                raise ValueError(f"column {name!r} has values that are no {kind}")
    for name, bits in columns.present.items():
        if name not in columns.plain or len(bits) != (rows + 7) // 8:
            raise ValueError(f"column {name!r} does not say which rows have a value")
    if (size := text_size(columns)) > MOST_TEXT:
        raise ValueError(f"its rows have {size} characters, more than {MOST_TEXT}")
    return columns


def text_size(columns: ColumnArrays) -> int:
    """The characters of all rows. The text of a run counts once for each of its rows."""
    return sum(
        len(value) * rows
        for values, lengths in columns.runs.values()
        for value, rows in zip(values, lengths, strict=True)
        if isinstance(value, str)
    )


def _is_within(value: Value, limit: int) -> bool:
    return isinstance(value, int) and -limit <= value < limit


def split(batch: RowBatch) -> tuple[RowBatch, RowBatch]:
    """Split a batch of more than one row into halves."""
    half = batch.rows // 2
    return _part(batch, 0, half), _part(batch, half, batch.rows)


def _part(batch: RowBatch, start: int, stop: int) -> RowBatch:
    columns = batch.columns
    plain = {
        name: data[start * WIDTHS[TYPES[name]] : stop * WIDTHS[TYPES[name]]]
        for name, data in columns.plain.items()
    }
    present = {
        name: _bits(int.from_bytes(bits, "little") >> start, stop - start)
        for name, bits in columns.present.items()
    }
    runs = {name: _part_of_runs(run, start, stop) for name, run in columns.runs.items()}
    return RowBatch(batch.first + start, stop - start, ColumnArrays(plain, runs, present))


def _part_of_runs(whole: Runs, start: int, stop: int) -> Runs:
    values, lengths = whole
    sizes = [
        max(0, min(end, stop) - max(end - length, start))
        for end, length in zip(accumulate(lengths), lengths, strict=True)
    ]
    return runs(values, sizes)


def _bits(number: int, rows: int) -> bytes:
    return (number & ((1 << rows) - 1)).to_bytes((rows + 7) // 8, "little")


def runs(values: Iterable[Value], sizes: Iterable[int]) -> Runs:
    """Runs of these values, each of ``sizes`` rows. Merges equal neighbours."""
    kept: list[Value] = []
    lengths: list[int] = []
    for value, size in zip(values, sizes, strict=True):
        if kept and kept[-1] == value:
            lengths[-1] += size
        elif size:
            kept.append(value)
            lengths.append(size)
    return kept, lengths


def little(numbers: array[int]) -> bytes:
    """The bytes of a plain column."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def plain(name: str, numbers: Sequence[int], *, unsigned: bool = False) -> bytes:
    """A plain column of these numbers. Unsigned numbers are stored as signed ones."""
    code = CODES[TYPES[name]]
    return struct.pack(f"<{len(numbers)}{code.upper() if unsigned else code}", *numbers)


def put_plain(columns: ColumnArrays, name: str, numbers: Sequence[int | None]) -> None:
    """Add a plain column that may have nulls."""
    columns.plain[name] = plain(name, [number or 0 for number in numbers])
    if any(number is None for number in numbers):
        text = "".join("0" if number is None else "1" for number in reversed(numbers))
        columns.present[name] = _bits(int(text, 2), len(numbers))
