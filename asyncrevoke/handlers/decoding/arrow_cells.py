"""Which JSON an Arrow type is read from, and how an Arrow array is made of what was read.

msgspec reads the JSON, not pyarrow's reader of JSON: the decision "Values as columns are decoded
one by one" says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from asyncrevoke.client.columns.arrow import Array, pa
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

# pyarrow has no type annotations.
_ArrowType: TypeAlias = Any
_ArrowField: TypeAlias = Any
# What making an array of cells raises if one has no place in it.
UNPLACEABLE = (ValueError, ArithmeticError)
# msgspec refuses them in names.
_NOT_IN_NAMES = re.compile(r'["\\\x00-\x1f]')
_LARGEST_FLOAT = 3.4028234663852886e38


class Cells(NamedTuple):
    """``kind`` is the type for msgspec, without null. ``array`` makes an Arrow array of objects of
    it, and of None for null. It raises one of ``UNPLACEABLE`` if one has no place in it."""

    kind: Any
    array: Callable[[Sequence[Any]], Array]


class StructCells:
    """The cells of an Arrow struct: instances of ``kind``, a class of msgspec."""

    def __init__(self, fields: Iterable[_ArrowField], path: str, *, forbids_unknown: bool) -> None:
        """Raises ConfigError for a field that is not read from JSON. ``path`` is the place of the
        struct in a value."""
        self.fields = list(fields)
        names = [field.name for field in self.fields]
        if not names:
            raise ConfigError(f"the struct at {path} has no fields: name those to read")
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"two fields at {path} have the name {shown_option(min(repeated))}")
        if unreadable := [name for name in names if _NOT_IN_NAMES.search(name)]:
            raise ConfigError(
                f"the field {shown_option(unreadable[0])} at {path} is not read from "
                'JSON: a name may not have quotation marks ("), backslashes and control characters'
            )
        self.cells = [
            _cells(field.type, f"{path}.{field.name}", forbids_unknown) for field in self.fields
        ]
        # A field may have a name that Python does not take for an attribute.
        attributes = [f"field_{number}" for number in range(len(names))]
        self.getters = [attrgetter(attribute) for attribute in attributes]
        self.kind: type[msgspec.Struct] = msgspec.defstruct(
            "Value",
            [
                (name, cells.kind | None, None) if field.nullable else (name, cells.kind)
                for name, cells, field in zip(attributes, self.cells, self.fields, strict=True)
            ],
            rename=dict(zip(attributes, names, strict=True)),
            forbid_unknown_fields=forbids_unknown,
            kw_only=True,
            gc=False,  # what is read from JSON has no circles
        )
        # Stands for a null: msgspec checks the types of fields only when it reads JSON.
        self.null = self.kind(**dict.fromkeys(attributes))

    def array(self, cells: Sequence[Any]) -> Array:
        """A struct array. Raises one of ``UNPLACEABLE``."""
        structs = [self.null if cell is None else cell for cell in cells]
        children = [
            column.array(list(map(get, structs)))
            for column, get in zip(self.cells, self.getters, strict=True)
        ]
        return self.of(children, _nulls(cells))

    def of(self, children: Sequence[Array], null: Array | None) -> Array:
        """A struct array of the columns of its fields."""
        array: Array = pa.StructArray.from_arrays(children, fields=self.fields, mask=null)
        return array


def _cells(kind: _ArrowType, path: str, forbids_unknown: bool) -> Cells:
    types = pa.types
    if types.is_struct(kind):
        struct = StructCells(
            [kind.field(number) for number in range(kind.num_fields)],
            path,
            forbids_unknown=forbids_unknown,
        )
        return Cells(struct.kind, struct.array)
    if types.is_list(kind) or types.is_large_list(kind):
        item = _cells(kind.value_type, f"{path}[...]", forbids_unknown)
        of = item.kind | None if kind.value_field.nullable else item.kind
        return Cells(list.__class_getitem__(of), _lists(kind, item))
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise ConfigError(f"the names of a JSON object are string, not {kind.key_type}: {path}")
        item = _cells(kind.item_type, f"{path}[...]", forbids_unknown)
        of = item.kind | None if kind.item_field.nullable else item.kind
        return Cells(dict.__class_getitem__((str, of)), _maps(kind, item))
    if types.is_timestamp(kind) or types.is_date32(kind):
        return Cells(str, _texts(kind, path))
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return Cells(Decimal, _decimals(kind))
    scalar = _SCALARS.get(str(kind))
    if scalar is None:
        raise ConfigError(
            f"{path} is {kind}, which is not read from JSON: declare it {_instead(kind)}, and cast "
            "the column"
        )
    return Cells(scalar, partial(pa.array, type=kind))


def _integer(bits: int) -> object:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


def _unsigned(bits: int) -> object:
    return Annotated[int, msgspec.Meta(ge=0, le=2**bits - 1)]


_SCALARS: dict[str, Any] = {
    "bool": bool,
    "int8": _integer(8),
    "int16": _integer(16),
    "int32": _integer(32),
    "int64": _integer(64),
    "uint8": _unsigned(8),
    "uint16": _unsigned(16),
    "uint32": _unsigned(32),
    # msgspec has no bound above an int64: the array refuses larger ones.
    "uint64": Annotated[int, msgspec.Meta(ge=0)],
    # An array would take a larger one for infinity.
    "float": Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)],
    "double": float,
    "string": str,
    "large_string": str,
}


def _instead(kind: _ArrowType) -> str:
    types = pa.types
    if types.is_date64(kind):
        return "date32"
    if types.is_time(kind) or types.is_duration(kind):
        return "int64"
    if types.is_floating(kind):
        return "float32"
    return "string"


def _texts(kind: _ArrowType, path: str) -> Callable[[Sequence[Any]], Array]:
    """ISO 8601."""

    def array(cells: Sequence[Any]) -> Array:
        made: Array = pa.array(cells, pa.string()).cast(kind)
        return made

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        _check_range(array, kind, path)
    return array


def _check_range(array: Callable[[Sequence[Any]], Array], kind: _ArrowType, path: str) -> None:
    """Raise ConfigError if pyarrow takes a date that nanoseconds do not reach for another."""
    try:
        array([f"2300-01-01T00:00:00{'Z' if kind.tz else ''}"])
    except UNPLACEABLE:
        return
    raise ConfigError(
        f"{path} is {kind}, and pyarrow {pa.__version__} takes dates after the year 2262 for "
        "others: install pyarrow 23 or newer, or declare microseconds"
    )


def _decimals(kind: _ArrowType) -> Callable[[Sequence[Any]], Array]:
    """Of numbers and of strings that have one. pyarrow gets only decimals of its scale: it does not
    check what it cannot round."""
    digits = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    scale = Decimal(1).scaleb(-kind.scale)

    def placed(cell: Decimal) -> Decimal:
        if not cell.is_finite():
            raise ValueError("not a number")
        return cell.quantize(scale, context=digits)

    def array(cells: Sequence[Any]) -> Array:
        made: Array = pa.array([None if cell is None else placed(cell) for cell in cells], kind)
        return made

    return array


def _lists(kind: _ArrowType, item: Cells) -> Callable[[Sequence[Any]], Array]:
    large = pa.types.is_large_list(kind)
    make, offset = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())

    def array(cells: Sequence[Any]) -> Array:
        made: Array = make.from_arrays(
            pa.array(_bounds(cells), offset),
            item.array([element for cell in cells if cell for element in cell]),
            type=kind,
            mask=_nulls(cells),
        )
        return made

    return array


def _maps(kind: _ArrowType, item: Cells) -> Callable[[Sequence[Any]], Array]:
    """Of JSON objects."""

    def array(cells: Sequence[Any]) -> Array:
        maps: list[dict[str, Any]] = [cell for cell in cells if cell]
        made: Array = pa.MapArray.from_arrays(
            pa.array(_bounds(cells), pa.int32()),
            pa.array(list(chain.from_iterable(maps)), kind.key_type),
            item.array(list(chain.from_iterable(one.values() for one in maps))),
            type=kind,
            mask=_nulls(cells),
        )
        return made

    return array


def _bounds(cells: Sequence[Any]) -> list[int]:
    """Where each list begins in all elements, and the last end."""
    return list(accumulate((len(cell or ()) for cell in cells), initial=0))


def _nulls(cells: Sequence[object]) -> Array | None:
    """Which are null, if any is."""
    if None not in cells:
        return None
    null: Array = pa.array([cell is None for cell in cells])
    return null
