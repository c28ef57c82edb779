"""Types for the parts of pyarrow that this package uses; pyarrow has no type annotations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


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

    @property
    def offset(self) -> int:
        """The position of its first value in its buffers."""
        ...

    def buffers(self) -> list[memoryview | None]:
        """The memory of its values."""
        ...

    def is_valid(self) -> Array:
        """Whether each value is not null."""
        ...

    def fill_null(self, value: object, /) -> Array:
        """The same values, with ``value`` in place of nulls."""
        ...

    def to_pylist(self) -> list[Any]:
        """Its values as Python objects."""
        ...

    def to_numpy(self, *, zero_copy_only: bool = True) -> NDArray[Any]:
        """Its values as a numpy array. Without ``zero_copy_only=False``, none may be null."""
        ...


class StructArray(Array, Protocol):
    """A column of structs."""

    def field(self, name: str, /) -> Array:
        """The values of one field."""
        ...


class StructListArray(Array, Protocol):
    """A column of lists of structs."""

    def flatten(self) -> StructArray:
        """The elements of all lists."""
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

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        ...


class ArrowRecordBatch(Protocol):
    """Rows in columns."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        ...

    @property
    def schema(self) -> Schema:
        """Its columns."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes of its columns."""
        ...

    def column(self, name: str, /) -> Array:
        """The column of this name."""
        ...

    def slice(self, offset: int, length: int | None = None, /) -> ArrowRecordBatch:
        """``length`` rows from ``offset`` on (None: all), without copying them."""
        ...

    def take(self, rows: Array, /) -> ArrowRecordBatch:
        """The rows with these numbers, in this order."""
        ...


pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
