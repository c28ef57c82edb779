"""Types for the parts of pyarrow that this package uses; pyarrow has no type annotations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame


class Array(Protocol):
    """A column."""

    def __len__(self) -> int: ...

    @property
    def type(self) -> DataType:
        """The type of its values."""
        ...

    @property
    def null_count(self) -> int:
        """How many of its values are null."""
        ...

    def to_pylist(self) -> list[Any]:
        """Its values as Python objects."""
        ...


class DataType(Protocol):
    """The type of a column."""


class Field(Protocol):
    """A column's name and type."""

    @property
    def type(self) -> DataType:
        """Its type."""
        ...


class Schema(Protocol):
    """The columns of a batch."""

    def __iter__(self) -> Iterator[Field]: ...


class ArrowRecordBatch(Protocol):
    """Rows, by column."""

    @property
    def num_rows(self) -> int:
        """How many."""
        ...

    def column(self, name: str, /) -> Array:
        """One of its columns."""
        ...


pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterable[ArrowRecordBatch]], Iterator[ArrowRecordBatch]],
    schema: str,
) -> DataFrame:
    """Apply ``task`` to the rows of each partition in a Python worker. Lazy."""
    return cast("DataFrame", cast("Any", frame).mapInArrow(task, schema))
