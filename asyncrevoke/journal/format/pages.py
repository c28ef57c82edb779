"""Checks the pages of a Parquet file before Arrow decodes them.

Arrow allocates what the header of a page declares, regardless of the footer, and some encodings
expand a few bytes to gigabytes. So this module reads the header of each page first.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final, TypeAlias

_Fields: TypeAlias = "dict[int, int | _Fields]"

# Limit for the rows of a row group; a journal writes 65,536.
_MOST_ROWS: Final = 2**20
# Limit for the decompressed bytes of a row group, whose texts have at most 2**27 characters.
_MOST_BYTES: Final = 2**29
# Types and fields of Parquet's PageHeader (parquet.thrift).
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_TYPE, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_HEADERS: Final = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
_NUM_VALUES: Final = 1
_ENCODING: Final = {_DATA_PAGE: 2, _DICTIONARY_PAGE: 2, _DATA_PAGE_V2: 4}
# PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED and RLE_DICTIONARY. In these, each value has its
# own bytes or is in the dictionary, so that few bytes cannot expand to many.
_ENCODINGS: Final = frozenset((0, 2, 3, 5, 8))
_CODECS: Final = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"))
_WIDTHS: Final = {"INT32": 4, "INT64": 8, "BYTE_ARRAY": 4}
# Types of Thrift's compact protocol.
_TRUE, _FALSE, _I32, _BINARY, _STRUCT = 1, 2, 5, 8, 12
_FIRST_WINDOW: Final = 512
_LARGEST_HEADER: Final = 2**17


def check_pages(file: BinaryIO, metadata: Any, row_group: int) -> int:  # noqa: ANN401 - pyarrow's
    """The decompressed size of the pages of a row group, in bytes.

    Raises ValueError if a page has a size, number of values or encoding that a journal does not
    write.
    """
    group = metadata.row_group(row_group)
    rows: int = group.num_rows
    if not 0 < rows <= _MOST_ROWS:
        raise ValueError(f"a row group of {rows} rows is larger than a journal writes")
    size = 0
    for index in range(group.num_columns):
        size += _check_column(file, group.column(index), rows)
        if size > _MOST_BYTES:
            raise ValueError("the pages of a row group are larger than a journal writes")
    return size


def _check_column(file: BinaryIO, column: Any, rows: int) -> int:  # noqa: ANN401 - pyarrow's
    name = column.path_in_schema
    if column.compression not in _CODECS or column.file_path:
        raise ValueError(f"column {name!r} is stored in a form that no version writes")
    width = _WIDTHS.get(column.physical_type)
    if width is None:
        raise ValueError(f"column {name!r} is of the type {column.physical_type}")
    at: int = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end: int = at + column.total_compressed_size
    if column.num_values != rows:
        raise ValueError(f"column {name!r} has {column.num_values} values for {rows} rows")
    size = values = 0
    while at < end and size <= _MOST_BYTES:
        header, length = _page_header(file, at)
        of_page = _number(header, _TYPE)
        if of_page not in _HEADERS:
            raise ValueError(f"column {name!r} has a page of the type {of_page}")
        found = header.get(_HEADERS[of_page])
        kind = found if isinstance(found, dict) else {}
        count, encoding = _number(kind, _NUM_VALUES), _number(kind, _ENCODING[of_page])
        unpacked, packed = _number(header, _UNCOMPRESSED), _number(header, _COMPRESSED)
        if encoding not in _ENCODINGS:
            raise ValueError(f"column {name!r} has a page of the encoding {encoding}")
        if of_page != _DICTIONARY_PAGE:
            values += count
        elif count * width > unpacked:
            raise ValueError(f"column {name!r} has a dictionary of {count} values without bytes")
        size += unpacked
        at += length + packed
    if size <= _MOST_BYTES and (at != end or values != rows):
        raise ValueError(f"column {name!r} has pages of {values} values for {rows} rows")
    return size


def _number(fields: _Fields, field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"field {field} of the header of a page is {value!r}")
    return value


def _page_header(file: BinaryIO, at: int) -> tuple[_Fields, int]:
    """The header of the page at this position, and its length in bytes."""
    window = _FIRST_WINDOW
    while True:
        file.seek(at)
        data = file.read(window)
        try:
            return _Header(data).read()
        except IndexError:
            if len(data) < window or window >= _LARGEST_HEADER:
                raise ValueError("the header of a page has no end") from None
            window *= 4


class _Header:
    """Reads a struct of Thrift's compact protocol, with the types of page headers.

    Rejects what two readers could interpret differently: a field that is repeated or out of order,
    and a number with more bytes than it needs. Raises IndexError if ``data`` ends too early.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> tuple[_Fields, int]:
        """All fields but texts, and the length in bytes."""
        return self._struct(3), self._at

    def _struct(self, depth: int) -> _Fields:
        if not depth:
            raise ValueError("the header of a page is nested too deeply")
        fields: _Fields = {}
        last = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            field = last + delta if delta else self._signed()
            if field <= last:
                raise ValueError("the fields of the header of a page are out of order")
            last = field
            if kind in (_TRUE, _FALSE):
                fields[field] = int(kind == _TRUE)
            elif kind == _I32 or 3 <= kind <= 6:
                fields[field] = self._signed()
            elif kind == _BINARY:
                size = self._varint()
                self._at += size
                if self._at > len(self._data):
                    raise IndexError
            elif kind == _STRUCT:
                fields[field] = self._struct(depth - 1)
            else:
                raise ValueError(f"the header of a page has a field of the type {kind}")
        return fields

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")
        if byte == 0 and shift > 7:
            raise ValueError("a number in the header of a page is longer than it needs to be")
        return value

    def _signed(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
