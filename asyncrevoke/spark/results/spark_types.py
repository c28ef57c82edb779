"""Derives the Spark type of a handler's results from its return annotation."""

from __future__ import annotations

import typing
from types import GenericAlias
from typing import TYPE_CHECKING, Final, cast

from msgspec import inspect

from asyncrevoke.client.config.annotations import expanded
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SCALARS: Final[dict[type[inspect.Type], str]] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.DateType: "date",
    inspect.DateTimeType: "timestamp",
    # JSON has these as text.
    inspect.BytesType: "string",
    inspect.ByteArrayType: "string",
    inspect.DecimalType: "string",
    inspect.TimeType: "string",
    inspect.UUIDType: "string",
}
_LISTS: Final = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.VarTupleType,
    inspect.CollectionType,
)
_FALLBACK: Final = 'give the schema as Spark writes types, for example "struct<order:bigint>"'


def spark_type(returned: object) -> str:
    """The type of a handler's results in Spark's notation.

    Bytes are ``binary`` and text is ``string``; any other value has the type of its JSON.
    ``returned`` is the class of the results, or a function with a return annotation. For a
    generator the type is a list. Raises ConfigError for an annotation that determines no type; the
    message says what to pass instead.
    """
    annotation = _returned_by(returned)
    found = _type_of(annotation)
    kinds = [
        alternative
        for alternative in _alternatives(found)
        if not isinstance(alternative, inspect.NoneType)
    ]
    if kinds and all(isinstance(kind, inspect.BytesType) for kind in kinds):
        return "binary"
    return _written(found, (), annotation)


def _returned_by(given: object) -> object:
    if isinstance(given, type) or not hasattr(given, "__code__"):
        return given
    try:
        hints = typing.get_type_hints(cast("Callable[..., object]", given))
    except NameError as error:
        raise ConfigError(
            f"the return annotation cannot be resolved ({error}): {_FALLBACK}"
        ) from error
    if "return" not in hints:
        raise ConfigError(f"{shown_option(given)} has no return annotation: {_FALLBACK}")
    annotation: object = hints["return"]
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and hasattr(origin, "__anext__"):
        return GenericAlias(list, typing.get_args(annotation)[:1])
    return annotation


def _type_of(annotation: object) -> inspect.Type:
    try:
        return inspect.type_info(expanded(annotation))
    except (TypeError, NameError) as error:
        raise ConfigError(
            f"{shown_option(str(annotation))} has no type in Spark ({error}): {_FALLBACK}"
        ) from error


def _alternatives(kind: inspect.Type) -> Iterable[inspect.Type]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _written(kind: inspect.Type, inside: tuple[object, ...], annotation: object) -> str:
    """The type in Spark's notation. ``inside`` are the classes that contain it: none of them may
    occur in it again."""
    kinds = [
        alternative
        for alternative in _alternatives(kind)
        if not isinstance(alternative, inspect.NoneType)
    ]
    if len(kinds) == 1:
        (kind,) = kinds
        if type(kind) in _SCALARS:
            return _SCALARS[type(kind)]
        if isinstance(kind, (inspect.LiteralType, inspect.EnumType)):
            values: Iterable[object] = (
                kind.values
                if isinstance(kind, inspect.LiteralType)
                else [cl.value for cl in kind.cls]
            )
            if all(isinstance(value, str) for value in values):
                return "string"
            if all(type(value) is int for value in values):
                return "bigint"
        if isinstance(kind, _LISTS):
            return f"array<{_written(kind.item_type, inside, annotation)}>"
        if isinstance(kind, inspect.DictType):
            return f"map<string,{_written(kind.value_type, inside, annotation)}>"
        fields = _fields(kind)
        if fields is not None and getattr(kind, "cls", None) not in inside:
            around = (*inside, getattr(kind, "cls", None))
            return f"struct<{','.join(_field(*field, around, annotation) for field in fields)}>"
    raise ConfigError(
        f"{shown_option(str(annotation))} has no single type in Spark (because of "
        f"{shown_option(str(kind))}): {_FALLBACK}"
    )


def _field(name: str, kind: inspect.Type, inside: tuple[object, ...], annotation: object) -> str:
    return f"`{name.replace('`', '``')}`:{_written(kind, inside, annotation)}"


def _fields(kind: inspect.Type) -> list[tuple[str, inspect.Type]] | None:
    """The fields of a JSON object; None for a type that is not an object."""
    if isinstance(kind, inspect.StructType) and not kind.array_like:
        tag = (
            [] if kind.tag_field is None else [(kind.tag_field, inspect.type_info(type(kind.tag)))]
        )
        return [*tag, *((field.encode_name, field.type) for field in kind.fields)]
    if isinstance(kind, (inspect.DataclassType, inspect.TypedDictType)):
        return [(field.encode_name, field.type) for field in kind.fields]
    return None
