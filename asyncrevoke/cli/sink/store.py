"""What a sink needs of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.columns.record_columns import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.cli.sink.parquet_file import ParquetFile
    from asyncrevoke.client.columns.arrow import Schema
    from asyncrevoke.client.model import TopicPartition


class Closed(NamedTuple):
    """A file that has all its rows: offsets from ``first`` to ``next`` of a partition."""

    partition: TopicPartition
    first: int
    next: int
    rows: int
    size: int
    file: ParquetFile


class Store(Protocol):
    """A lake of one topic; implemented by ``ParquetFolder`` and ``DeltaFolder``.

    The offsets that it has of a partition are an interval that begins at 0, and :meth:`publish` can
    only make it longer at its end. So two members that both believe to own a partition store none
    of its records twice.
    """

    @property
    def together(self) -> bool:
        """Whether to store the files of all partitions at once."""
        ...

    def open(self) -> None:
        """Create the folder, or check what it has. Raises ConfigError for another topic's, for
        other columns and for a folder that cannot be written."""
        ...

    def stored(self, partition: TopicPartition) -> int:
        """The offset that the stored ones of a partition end before; 0 if none are stored."""
        ...

    def create(self, partition: TopicPartition, first: int) -> ParquetFile:
        """A file for rows from ``first`` on, which no reader sees."""
        ...

    def publish(self, files: Sequence[Closed]) -> set[TopicPartition]:
        """Let readers see these files, in one step each. Returns the partitions of which another
        member has stored offsets from ``first`` on: readers do not see these files, which may be
        discarded. After an error they stay: readers may see them."""
        ...


def schema(columns: Sequence[str]) -> Schema:
    """The schema of the rows."""
    made: Schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
    return made
