"""Sealed segments: Parquet files that contain a digest of their own bytes.

The footer's key ``asyncrevoke.journal`` has the header and the digest of the sealed log.
``asyncrevoke.digest`` has the SHA-256 of the file, computed with zeros in place of its 64 digits.
Each page also has a checksum, which other Parquet readers can verify.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self

import msgspec

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.files import create_file, open_file
from asyncrevoke.journal.format.arrow import Array, ParquetWriter, RecordBatch, pa, pc, pq
from asyncrevoke.journal.format.pages import check_pages
from asyncrevoke.journal.format.rows import COMPACT_SCHEMA, ROW_BYTES, SCHEMA, RowMemory, nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ABOUT: Final = "asyncrevoke.journal"
_DIGEST: Final = "asyncrevoke.digest"
_CHANGED: Final = "its bytes were changed after it was sealed (SHA-256)"
_ZEROS: Final = b"0" * 64
_FOUND = re.compile(rb"sha256:([0-9a-f]{64})")
_STEP: Final = 2**20
# A row group takes 2 kB of the footer.
_LARGEST_FOOTER: Final = 2**26
# Limit for the characters of a text. Errors are cut at 4,096; the facts of a session are longer.
_LONGEST_TEXT: Final = 2**20

ROW_GROUP: Final = 65_536
# Columns without a dictionary, because their values seldom repeat. Dictionaries would double the
# time of writing, and enlarge the file.
_DISTINCT: Final = (
    "seq",
    "at_us",
    "started_us",
    "offset",
    "key_hash",
    "record_hash",
    "last_offset",
    "checksum",
)
# Columns that are stored as differences.
_GROWING: Final = dict.fromkeys(
    ("seq", "at_us", "started_us", "offset", "last_offset"), "DELTA_BINARY_PACKED"
)
_REPEATED: Final = [name for name in SCHEMA.names if name not in _DISTINCT]
_SESSION: Final = "session_id"
_TEXTS: Final = [field.name for field in SCHEMA if field.type == pa.string()]


class About(msgspec.Struct, frozen=True):
    """Header and digest of the sealed log. Digests are hexadecimal."""

    session: str
    segment: int
    previous: str | None
    digest: str | None
    version: int


class SealedFile:
    """Writes a sealed segment. :meth:`seal` completes the file, :meth:`abandon` removes it."""

    def __init__(self, path: Path, mode: int) -> None:
        """``mode`` has the permissions of the file, which the first :meth:`write` creates."""
        self._path = path
        self._mode = mode
        self._file: BinaryIO | None = None
        self._writer: ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def write(self, batch: RecordBatch) -> None:
        """Append rows as a row group. All batches must have the same types."""
        writer = self._writer
        if writer is None:
            self._file = os.fdopen(create_file(self._path, self._mode), "rb+")
            writer = self._writer = pq.ParquetWriter(
                self._file,
                batch.schema,
                compression="zstd",
                use_dictionary=_REPEATED,
                column_encoding=_GROWING,
                write_page_checksum=True,
                # Readers get strings instead of the dictionaries of ``compact`` batches.
                store_schema=False,
            )
        writer.write_batch(batch, row_group_size=ROW_GROUP)

    def seal(self, about: About) -> None:
        """Write the footer and sync the file to disk."""
        if self._writer is None:
            self.write(_no_rows())
        writer, self._writer = self._writer, None
        file, self._file = self._file, None
        assert writer is not None
        assert file is not None
        writer.add_key_value_metadata(
            {_ABOUT: msgspec.json.encode(about).decode(), _DIGEST: f"sha256:{_ZEROS.decode()}"}
        )
        with file:
            writer.close()
            file.flush()
            at = _place_of_digest(file)
            assert at is not None
            digest = _digest(file, at)
            file.seek(at)
            file.write(digest)
            file.flush()
            os.fsync(file.fileno())

    def abandon(self) -> None:
        """Remove the file, unless it is sealed."""
        writer, self._writer = self._writer, None
        file, self._file = self._file, None
        if file is not None:
            with file:
                if writer is not None:
                    writer.close()
            self._path.unlink()


def _no_rows() -> RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)


class Sealed(NamedTuple):
    """The content of a sealed segment. If
    ``damaged`` is not None, it describes the damage, and ``batches`` is empty."""

    batches: list[RecordBatch]
    about: About | None
    damaged: str | None


def read_sealed(path: Path, memory: RowMemory) -> Sealed:
    """Verify the digest and read all rows, with dictionaries of texts. Raises ConfigError for a
    link and for rows beyond ``memory``; OSError."""
    with open_file(path) as file:
        return _verified(file, lambda metadata: list(_row_groups(metadata, file, path, memory)))


def read_sealed_file(
    file: BinaryIO, name: str, take: Callable[[RecordBatch], None], columns: Sequence[str]
) -> Sealed:
    """Verify the digest and all pages, and pass the rows to ``take``, one batch at a time, with
    dictionaries of texts. Only these columns have values. The batches of the result have the
    session ids only. If the result is damaged, the rows that were passed on may be wrong."""

    def read(metadata: Any) -> list[RecordBatch]:  # noqa: ANN401 - pyarrow's
        named: list[RecordBatch] = []
        for batch in _row_groups(metadata, file, Path(name), RowMemory(), columns):
            names = pc.unique(batch.column(_SESSION))
            named.append(pa.RecordBatch.from_arrays([names], [_SESSION]))
            take(batch)
        return named

    return _verified(file, read)


def _verified(file: BinaryIO, rows: Callable[[Any], list[RecordBatch]]) -> Sealed:
    """Verify the digest of the file, then read rows by ``rows``, which gets the metadata."""
    try:
        at = _place_of_digest(file)
        if at is not None:
            file.seek(at)
            if file.read(len(_ZEROS)) != _digest(file, at):
                return Sealed([], None, _CHANGED)
        file.seek(0)
        metadata = pq.read_metadata(file)
        known: dict[bytes, bytes] = metadata.metadata or {}
        about = None
        if (text := known.get(_ABOUT.encode())) is not None:
            about = msgspec.json.decode(text, type=About)
            if at is None:
                return Sealed([], about, _CHANGED)
        return Sealed(rows(metadata), about, None)
    except ConfigError:
        raise
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        return Sealed([], None, f"it is not readable: {error}")


def _check_columns(metadata: Any) -> list[str]:  # noqa: ANN401 - pyarrow's
    """The names of the columns. Raises ValueError for columns that a journal does not have."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if len(set(names)) < len(names):
        raise ValueError("it has two columns of one name")
    if unknown := set(names) - set(SCHEMA.names):
        raise ValueError(f"journals have no column {min(unknown)!r}")
    return names


def _row_groups(
    metadata: Any,  # noqa: ANN401 - pyarrow's
    file: BinaryIO,
    path: Path,
    memory: RowMemory,
    columns: Sequence[str] = SCHEMA.names,
) -> Iterator[RecordBatch]:
    names = _check_columns(metadata)
    texts = [name for name in _TEXTS if name in names]
    parquet = pq.ParquetFile(
        file, metadata=metadata, read_dictionary=texts, page_checksum_verification=True
    )
    for number in range(parquet.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if rows == 0:
            continue
        size = check_pages(file, metadata, number)
        memory.check(size + rows * ROW_BYTES, path)
        # pyarrow reads from the same file object, at positions that it sets itself.
        for some in parquet.iter_batches(ROW_GROUP, [number], columns, use_threads=False):
            batch = _columns_of(some)
            memory.add(batch, path)
            yield batch


def _columns_of(batch: RecordBatch) -> RecordBatch:
    """The columns of a journal. Columns that the file does not have, and columns without values,
    become null and take no memory."""
    columns: list[Array] = []
    for field in COMPACT_SCHEMA:
        at = batch.schema.get_field_index(field.name)
        column = None if at < 0 else batch.column(at)
        if column is None or column.null_count == batch.num_rows:
            columns.append(nulls(batch.num_rows, field.type))
            continue
        if column.type != field.type:
            raise ValueError(f"its column {field.name} is of the type {column.type}")
        column.validate(full=True)
        if field.name in _TEXTS:
            longest = pc.max(pc.binary_length(column.dictionary)).as_py()
            if longest is not None and longest > _LONGEST_TEXT:
                raise ValueError(f"its column {field.name} has a text of {longest} bytes")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=COMPACT_SCHEMA)


def _place_of_digest(file: BinaryIO) -> int | None:
    """The position of the digest's digits in the file. None if the file has no digest."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or length > size:
        return None
    if length > _LARGEST_FOOTER:
        raise ValueError(f"its footer has {length} bytes, more than a journal writes")
    begin = max(0, size - 8 - length)
    file.seek(begin)
    found = list(_FOUND.finditer(file.read(length)))
    return begin + found[-1].start(1) if found else None


def _digest(file: BinaryIO, at: int) -> bytes:
    """The SHA-256 of a file, with zeros for the 64 digits at ``at``."""
    digest = hashlib.sha256()
    file.seek(0)
    left = at
    while piece := file.read(min(left, _STEP)):
        digest.update(piece)
        left -= len(piece)
    digest.update(_ZEROS)
    file.seek(at + len(_ZEROS))
    while piece := file.read(_STEP):
        digest.update(piece)
    return digest.hexdigest().encode()
