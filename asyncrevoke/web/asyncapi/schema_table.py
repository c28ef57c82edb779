"""A JSON Schema as the rows of a table: one for each field, with its type and its limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from asyncrevoke.handlers.asyncapi.json_schemas import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.handlers.asyncapi.objects import Schema

# Schemas are nested as deeply as their author likes; fields below are not listed.
_MOST_LEVELS: Final = 6
_SAYS_THE_TYPE: Final = frozenset(
    (
        *("$ref", "additionalItems", "additionalProperties", "allOf", "anyOf", "const"),
        *("description", "enum", "format", "items", "oneOf", "properties", "required"),
        *("title", "type"),
    )
)


class TypePart(NamedTuple):
    """A part of the name of a type; ``schema`` is the component that it links to."""

    text: str
    schema: str | None = None


class Row(NamedTuple):
    """A field. ``limits`` has the other keywords of its schema, as JSON."""

    name: str
    required: bool
    type: list[TypePart]
    description: str
    limits: list[str]


def rows(schema: Schema, prefix: str = "", level: int = 0) -> Iterator[Row]:
    """The fields of an object, and those of objects inside, by their paths."""
    properties = cast("dict[str, Schema]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    for name, field in properties.items():
        yield Row(
            prefix + name,
            name in required,
            type_of(field),
            str(field.get("description", "")),
            limits_of(field),
        )
        if level < _MOST_LEVELS:
            yield from rows(field, f"{prefix}{name}.", level + 1)


def type_of(schema: Schema | bool) -> list[TypePart]:
    """The name of a type."""
    return list(_type(schema, 0))


def limits_of(schema: Schema) -> list[str]:
    """The keywords of a schema that its type does not say."""
    return [
        f"{keyword}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for keyword, value in schema.items()
        if keyword not in _SAYS_THE_TYPE
    ]


def _type(schema: Schema | bool, level: int) -> Iterator[TypePart]:
    if isinstance(schema, bool) or level > _MOST_LEVELS:
        yield TypePart("any value")
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(COMPONENTS)
        yield TypePart(name, name)
        return
    for keyword in ("allOf", "anyOf", "oneOf"):
        if several := schema.get(keyword):
            between = " and " if keyword == "allOf" else " or "
            yield from _joined(cast("list[Schema]", several), between, level)
            return
    if "const" in schema or "enum" in schema:
        values = cast("list[object]", schema.get("enum", [schema.get("const")]))
        yield TypePart(" or ".join(json.dumps(value, default=str) for value in values))
        return
    yield from _named(schema, level)


def _named(schema: Schema, level: int) -> Iterator[TypePart]:
    named = schema.get("type", "any value")
    several = cast("list[str]", named) if isinstance(named, list) else [str(named)]
    yield TypePart(" or ".join(several))
    if "format" in schema:
        yield TypePart(f" ({schema['format']})")
    items, others = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, list):
        yield TypePart(" of ")
        yield from _joined(cast("list[Schema]", items), ", ", level)
    elif isinstance(items, dict):
        yield TypePart(" of ")
        yield from _type(cast("Schema", items), level + 1)
    elif isinstance(others, dict):
        yield TypePart(" of ")
        yield from _type(cast("Schema", others), level + 1)


def _joined(schemas: list[Schema], between: str, level: int) -> Iterator[TypePart]:
    for number, schema in enumerate(schemas):
        if number:
            yield TypePart(between)
        yield from _type(schema, level + 1)
