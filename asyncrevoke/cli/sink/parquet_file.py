"""Writes one Parquet file."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrevoke.client.columns.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch, Schema


class ParquetFile:
    """A new file at ``path``, compressed by zstd. Raises OSError, also from its methods."""

    def __init__(self, path: Path, schema: Schema) -> None:
        parquet: Any = import_module("pyarrow.parquet")
        self.path = path
        # pyarrow has no types.
        self._file: Any = pa.OSFile(str(path), "wb")
        self._writer: Any = parquet.ParquetWriter(self._file, schema, compression="zstd")

    def write(self, batches: Sequence[ArrowRecordBatch]) -> int:
        """Write these rows as one row group. Returns the size of the file."""
        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=table.num_rows)
        return int(self._file.tell())

    def finish(self, metadata: Mapping[str, str]) -> int:
        """Close the file, with this metadata, and have it written to the disk. Returns its size."""
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()
        self._file.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def discard(self) -> None:
        """Close the file, and remove it. A file that was renamed or removed stays so."""
        # The end of the file cannot be written either on a full disk, and nobody reads it.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._file.close()
        with suppress(OSError):
            self.path.unlink()
