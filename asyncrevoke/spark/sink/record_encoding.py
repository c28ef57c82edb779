"""Encodes rows as records of message format 2 (KIP-98). Creates no object for a record.

numpy encodes the varints (lengths and deltas) of all rows at once; Arrow joins them with the keys
and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from asyncrevoke.client.columns.arrow import Array, StructArray, StructListArray, pa, pc
from asyncrevoke.client.producing.encoded_records import EncodedRecords
from asyncrevoke.client.producing.producer_core import LARGEST_RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence


Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


class BinaryColumn(NamedTuple):
    """``array`` has bytes without nulls. Row ``r`` is ``content[begin[r]:begin[r] + length[r]]``,
    which is empty if ``null[r]``."""

    array: Array
    content: NDArray[np.uint8]
    begin: Numbers
    length: Numbers
    null: Flags

    @classmethod
    def of(cls, column: Array) -> BinaryColumn:
        """From a column of type binary, string, their large types, or null."""
        array = cast("Array", pc.cast(column, pa.binary()))
        null = ~array.is_valid().to_numpy(zero_copy_only=False)
        if null.any():
            array = array.fill_null(b"")
        _, bounds, data = array.buffers()
        assert bounds is not None
        offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
        begin = offsets[:-1].astype(np.int64)
        content = np.frombuffer(b"" if data is None else data, np.uint8)
        return cls(array, content, begin, offsets[1:] - begin, null)


_NO_HEADERS: Final = pa.scalar(b"\0")
_NOTHING: Final = pa.scalar(b"")
_NULL_LENGTH: Final = -1


class RejectedRow(Exception):  # noqa: N818 - names the rejected row
    """The row with index ``row`` cannot be written."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


class Rows(NamedTuple):
    """The fields of rows. ``timestamp`` is in milliseconds since the epoch. ``headers`` are lists
    of structs with the fields key and value."""

    key: BinaryColumn
    value: BinaryColumn
    timestamp: Numbers
    headers: StructListArray | None


def encode_rows(rows: Rows, starts: Numbers) -> list[EncodedRecords]:
    """The records of these rows. Each of the row indices ``starts`` begins a batch; the first is 0.

    Raises RejectedRow for a record that is too large for Kafka, or has a header without a key.
    """
    count = len(rows.timestamp)
    sizes = np.diff(starts, append=count)
    in_batch = np.arange(count) - starts.repeat(sizes)
    first = rows.timestamp[starts]
    last = np.maximum.reduceat(rows.timestamp, starts)
    tails, tail_sizes = (
        (_NO_HEADERS, 1)
        if rows.headers is None or not len(entries := rows.headers.flatten())
        else _headers(_list_lengths(rows.headers), entries)
    )
    key_length = np.where(rows.key.null, _NULL_LENGTH, rows.key.length)
    value_length = np.where(rows.value.null, _NULL_LENGTH, rows.value.length)
    # The attributes of a record are 0.
    head = [
        np.zeros(count, np.int64),
        rows.timestamp - first.repeat(sizes),
        in_batch,
        key_length,
    ]
    body = sum(map(_width, head)) + _width(value_length) + tail_sizes
    body = body + rows.key.length + rows.value.length
    if (too_large := np.flatnonzero(body > LARGEST_RECORD)).size:
        row = int(too_large[0])
        raise RejectedRow(row, f"the record has {body[row]} bytes, which no broker accepts")
    joined = _joined(
        _varints([body, *head]), rows.key.array, _varints([value_length]), rows.value.array, tails
    )
    _, bounds, data = joined.buffers()
    assert bounds is not None
    assert data is not None
    content = memoryview(data)
    places = np.frombuffer(bounds, np.int32)[np.append(starts, count)].tolist()
    return [
        EncodedRecords(size, begins, ends, content[places[number] : places[number + 1]])
        for number, (size, begins, ends) in enumerate(
            zip(sizes.tolist(), first.tolist(), last.tolist(), strict=True)
        )
    ]


def headers_size(headers: StructListArray) -> Numbers:
    """About how many bytes the headers of each row take."""
    lengths = _list_lengths(headers)
    flat = headers.flatten()
    sizes = np.zeros(len(flat), np.int64)
    for name in ("key", "value"):
        sizes += _numbers(pc.binary_length(flat.field(name)).fill_null(0))
    totals = np.zeros(len(flat) + 1, np.int64)
    np.cumsum(sizes, out=totals[1:])
    ends = np.cumsum(lengths)
    return cast("Numbers", totals[ends] - totals[ends - lengths])


def _headers(lengths: Numbers, entries: StructArray) -> tuple[Array, Numbers]:
    """The encoded headers of each row with their count, and the sizes of these in bytes.

    ``lengths`` are the numbers of headers of the rows; at least one row has a header.
    """
    missing = pc.or_(pc.is_null(entries), pc.is_null(entries.field("key")))
    if pc.any(missing).as_py():
        at: int = pc.index(missing, True).as_py()
        row = int(np.cumsum(lengths).searchsorted(at, side="right"))
        raise RejectedRow(row, "one of its headers has no key: only the value may be null")
    name, value = BinaryColumn.of(entries.field("key")), BinaryColumn.of(entries.field("value"))
    value_length = np.where(value.null, _NULL_LENGTH, value.length)
    encoded = _joined(_varints([name.length]), name.array, _varints([value_length]), value.array)
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    lists = pa.ListArray.from_arrays(pa.array(bounds), encoded)
    tails = _joined(_varints([lengths]), pc.binary_join(lists, _NOTHING))
    return tails, _numbers(pc.binary_length(tails))


def _list_lengths(lists: Array) -> Numbers:
    return _numbers(pc.list_value_length(lists).fill_null(0))


def _numbers(column: Array) -> Numbers:
    return column.to_numpy(zero_copy_only=False).astype(np.int64)


def _joined(*columns: Array) -> Array:
    """The concatenated bytes of these columns, row by row."""
    return cast("Array", pc.binary_join_element_wise(*columns, _NOTHING))


def _zigzag(numbers: Numbers) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _width(numbers: Numbers) -> Numbers:
    """The bytes of each number as a varint."""
    unsigned = _zigzag(numbers)
    widths = np.ones(len(numbers), np.int64)
    limit, largest = 7, int(unsigned.max(initial=0))
    while largest >> limit:
        widths += unsigned >> np.uint64(limit) != 0
        limit += 7
    return widths


def _varints(fields: Sequence[Numbers]) -> Array:
    """The varints of several numbers of each row, concatenated."""
    columns: list[NDArray[np.uint8]] = []
    used: list[NDArray[np.bool_]] = []
    sizes = np.zeros(len(fields[0]), np.int32)
    for field in fields:
        left = _zigzag(field)
        present = np.ones(len(field), np.bool_)
        while present.any():
            byte = (left & np.uint64(0x7F)).astype(np.uint8)
            left = left >> np.uint64(7)
            more = left != 0
            byte[more] |= 0x80
            columns.append(byte)
            used.append(present)
            sizes += present
            present = more
    kept = np.column_stack(used)
    content = np.column_stack(columns)[kept]
    bounds = np.zeros(len(kept) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    return cast("Array", pa.Array.from_buffers(pa.binary(), len(kept), buffers))
