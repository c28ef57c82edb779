"""JSON Schemas of the types that handlers receive and return, by msgspec and pydantic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from asyncrevoke.client.config.annotations import expanded
from asyncrevoke.handlers.decoding.decoders import annotation_name, has_pydantic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from asyncrevoke.handlers.asyncapi.objects import Schema

Mode: TypeAlias = Literal["validation", "serialization"]

_DEFINITIONS: Final = "#/$defs/"
COMPONENTS: Final = "#/components/schemas/"
# Keywords whose values have schemas; the values of all others are data.
_OF_ONE: Final = frozenset(
    ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
)
_OF_SEVERAL: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_OF_NAMES: Final = frozenset(("patternProperties", "properties"))


def identifier(text: str) -> str:
    """A text as the name of a component: letters, digits, dots, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_") or "_"


class JsonSchemas:
    """Generates schemas, and collects those that have names in ``components``."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        # Two modules may have classes with one name: what each name stands for.
        self._meanings: dict[str, bytes] = {}

    def of(self, annotation: object, mode: Mode) -> Schema:
        """The schema of values as they are read (``validation``) or written; without keywords if
        the type has none."""
        try:
            return self._schema(annotation, mode)
        except Exception:  # noqa: BLE001 - msgspec and pydantic have several, a user's class any
            return {"description": f"A value of the type {annotation_name(annotation)}."}

    def named(self, name: str, schema: Schema) -> Schema:
        """A reference to a schema, which becomes a component."""
        component = self._name(name, {name: schema})
        self.components[component] = schema
        return {"$ref": COMPONENTS + component}

    def _schema(self, annotation: object, mode: Mode) -> Schema:
        generated = _generated(annotation, mode)
        definitions = cast("dict[str, Schema]", generated.pop("$defs", {}))
        name = identifier(annotation_name(annotation))
        if "properties" in generated and name not in definitions:
            definitions[name] = generated
            generated = cast("Schema", {"$ref": _DEFINITIONS + name})
        names = {name: self._name(name, definitions) for name in definitions}
        for definition, component in names.items():
            self.components[component] = _converted(definitions[definition], names)
        return _converted(generated, names)

    def _name(self, definition: str, definitions: Mapping[str, Schema]) -> str:
        found = {definition}
        pending = [definition]
        while pending:
            used = definitions.keys() & set(_references(definitions[pending.pop()])) - found
            found |= used
            pending += used
        meaning = msgspec.json.encode([(name, definitions[name]) for name in sorted(found)])
        name = first = identifier(definition)
        count = 1
        while self._meanings.setdefault(name, meaning) != meaning:
            count += 1
            name = f"{first}_{count}"
        return name


def _generated(annotation: object, mode: Mode) -> Schema:
    kind = cast("Any", expanded(annotation))
    if not has_pydantic(kind):
        return cast("Schema", msgspec.to_builtins(msgspec.json.schema(kind)))
    from pydantic import TypeAdapter

    by_alias = mode == "validation"
    if not by_alias:  # as model_dump_json() writes
        config = cast("dict[str, object]", getattr(kind, "model_config", {}))
        by_alias = bool(config.get("serialize_by_alias", False))
    return cast(
        "Schema", msgspec.to_builtins(TypeAdapter(kind).json_schema(mode=mode, by_alias=by_alias))
    )


def _parts(schema: Schema) -> Iterator[Schema]:
    """The schemas directly inside a schema."""
    for keyword, value in schema.items():
        if keyword in _OF_NAMES:
            yield from cast("dict[str, Schema]", value).values()
        elif isinstance(value, list) and keyword in _OF_SEVERAL:
            yield from cast("list[Schema]", value)
        elif keyword in _OF_ONE:
            yield cast("Schema", value)


def _references(schema: Schema | bool) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield reference.removeprefix(_DEFINITIONS)
    for part in _parts(schema):
        yield from _references(part)


def _converted(schema: Schema, names: Mapping[str, str]) -> Schema:
    """A schema of JSON Schema 2020-12 in draft 7, with references to components.

    Draft 7 ignores what stands beside a reference, and has ``items`` for the elements of a tuple.
    AsyncAPI has another ``discriminator``; a schema is complete without it.
    """

    def convert(part: Schema | bool) -> Schema | bool:
        return part if isinstance(part, bool) else _converted(part, names)

    made = {
        keyword: _converted_value(keyword, value, convert)
        for keyword, value in schema.items()
        if keyword != "discriminator"
    }
    if elements := made.pop("prefixItems", None):
        if "items" in made:
            made["additionalItems"] = made["items"]
        made["items"] = elements
    reference = made.get("$ref")
    if isinstance(reference, str):
        definition = reference.removeprefix(_DEFINITIONS)
        to = {"$ref": COMPONENTS + names[definition] if definition in names else reference}
        del made["$ref"]
        made = {**made, "allOf": [to]} if made else cast("Schema", to)
    return made


def _converted_value(
    keyword: str, value: object, convert: Callable[[Schema | bool], Schema | bool]
) -> object:
    if keyword in _OF_NAMES:
        return {name: convert(one) for name, one in cast("dict[str, Schema]", value).items()}
    if keyword in _OF_SEVERAL and _is_list(value):
        return [convert(one) for one in cast("list[Schema]", value)]
    return convert(cast("Schema", value)) if keyword in _OF_ONE else value


def _is_list(value: object) -> bool:
    return isinstance(value, list)
