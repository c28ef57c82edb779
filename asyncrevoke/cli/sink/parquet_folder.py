"""A folder of Parquet files, each with the records of an interval of offsets of one partition."""

from __future__ import annotations

import os
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.cli.sink.file_names import StoredFile, parse_name, parse_temporary_name
from asyncrevoke.cli.sink.parquet_file import ParquetFile
from asyncrevoke.cli.sink.plan import StorageError
from asyncrevoke.cli.sink.store import schema
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asyncrevoke.cli.sink.store import Closed
    from asyncrevoke.client.model import TopicPartition

_NEXT: Final = b"asyncrevoke.next"


class ParquetFolder:
    """The folder of one topic. Its methods raise OSError.

    A file is written under a temporary name, and gets its own by a link, which fails if the name
    exists. As the name has the offset where the files before it end, only one member can store what
    comes next.
    """

    together = False

    def __init__(self, folder: Path, topic: str, columns: Sequence[str]) -> None:
        self._folder = folder
        self._topic = topic
        self._columns = list(columns)
        self._schema = schema(columns)

    def open(self) -> None:
        """Create the folder, or check that it has files of this topic only."""
        self._folder.mkdir(parents=True, exist_ok=True)
        last: StoredFile | None = None
        for name in sorted(os.listdir(self._folder)):
            if name == "_delta_log":
                raise ConfigError(f"{self._folder} is a Delta table: use asyncrevoke sink delta")
            found = parse_name(name)
            if name.endswith(".parquet") and (
                found is None or found.partition.topic != self._topic
            ):
                raise ConfigError(
                    f"{self._folder} has {name}, which is no file of the topic {self._topic}: "
                    "choose another folder"
                )
            last = found or last
        if last is not None:
            self._check_columns(last)
        check_writable(self._folder)

    def stored(self, partition: TopicPartition) -> int:
        """Where the files of a partition end. Removes what others have left unfinished."""
        found = [0]
        last: StoredFile | None = None
        for name in os.listdir(self._folder):
            unfinished = parse_temporary_name(name)
            if unfinished is not None and unfinished.partition == partition:
                # Who was writing it, if anyone still is, does not own the partition any more.
                (self._folder / name).unlink(missing_ok=True)
            file = parse_name(name)
            if file is not None and file.partition == partition:
                last = file if last is None else max(last, file)
        if last is not None:
            found.append(self._next_offset(last))
        return max(found)

    def create(self, partition: TopicPartition, first: int) -> ParquetFile:
        """A file under a temporary name."""
        name = StoredFile(partition, first).temporary_name(uuid.uuid4().hex)
        return ParquetFile(self._folder / name, self._schema)

    def publish(self, files: Sequence[Closed]) -> set[TopicPartition]:
        """Give each file its name, if it does not exist."""
        refused: set[TopicPartition] = set()
        for closed in files:
            path = self._folder / StoredFile(closed.partition, closed.first).name
            try:
                link(closed.file.path, path)
            except (FileExistsError, FileNotFoundError):
                # Stored by another member, or removed by it in stored().
                refused.add(closed.partition)
        sync_folder(self._folder)
        return refused

    def _next_offset(self, file: StoredFile) -> int:
        metadata: dict[bytes, bytes] = self._read(file).metadata or {}
        value = metadata.get(_NEXT, b"")
        if not value.isdigit() or len(value) > 19 or int(value) <= file.first:
            raise StorageError(
                f"{self._folder / file.name} does not say where its offsets end: it was not "
                "written by asyncrevoke sink, or was written again; restore it"
            )
        return int(value)

    def _check_columns(self, file: StoredFile) -> None:
        names = list(self._read(file).schema.to_arrow_schema().names)
        if names != self._columns:
            raise ConfigError(
                f"{self._folder / file.name} has the columns {','.join(names)}: choose these, or "
                "another folder"
            )

    def _read(self, file: StoredFile) -> Any:  # noqa: ANN401 - pyarrow has no types
        parquet: Any = import_module("pyarrow.parquet")
        path = self._folder / file.name
        try:
            return parquet.read_metadata(str(path))
        except pa.ArrowInvalid as error:
            raise StorageError(
                f"{path} is damaged, and what is stored cannot be known: restore it, or remove it "
                "to have its records written again"
            ) from error


def link(source: Path, target: Path) -> None:
    """Give a file another name. Raises FileExistsError if that exists."""
    if os.name == "nt":
        source.rename(target)
        return
    os.link(source, target)
    source.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have the names of a folder written to the disk."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_writable(folder: Path) -> None:
    """Raise OSError if a file cannot be written and linked in the folder."""
    source = folder / f".{uuid.uuid4().hex}.tmp"
    target = folder / f"{source.name}.linked"
    try:
        with source.open("xb") as file:
            file.write(b"x")
        link(source, target)
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
