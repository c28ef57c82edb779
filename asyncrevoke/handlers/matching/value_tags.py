"""Tags of values, which choose among the handlers of one topic.

A tag is read without decoding the rest of the value.
"""

from __future__ import annotations

import types
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, cast, get_args, get_origin

import msgspec

from asyncrevoke.client.config.annotations import members
from asyncrevoke.handlers.decoding.decode_failure import decode_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.model import Record


class TagField(NamedTuple):
    """The place of a tag: a field of a JSON object, or the first element of an array."""

    name: str
    array: bool = False


class ValueTags(NamedTuple):
    """The tags of the values that a handler takes, by the field that has them.

    ``tombstones``: the handler takes null values, too.
    """

    by_field: dict[TagField, frozenset[object]]
    tombstones: bool


def value_tags(annotation: object) -> ValueTags | None:
    """The tags of an annotation; None if it has none.

    A ``msgspec.Struct`` with ``tag`` has them, a pydantic model with ``Literal`` fields, and a
    union of these.
    """
    of = members(annotation)
    tombstones = types.NoneType in of
    by_field: dict[TagField, set[object]] | None = None
    for member in of:
        if member is types.NoneType:
            continue
        own = _tags_of_class(member)
        if by_field is None:
            by_field = {field: set(values) for field, values in own.items()}
        else:
            by_field = {
                field: values | own[field] for field, values in by_field.items() if field in own
            }
    if not by_field:
        return None
    return ValueTags({field: frozenset(tags) for field, tags in by_field.items()}, tombstones)


def common_field(tags: Sequence[ValueTags]) -> TagField | None:
    """The first field in which no two of these have the same tag; None if there is none."""
    for field in tags[0].by_field:
        of_all = [tag.by_field.get(field) for tag in tags]
        named = [values for values in of_all if values is not None]
        if len(named) == len(tags) and len({tag for values in named for tag in values}) == sum(
            map(len, named)
        ):
            return field
    return None


class TagReader:
    """Reads the tag of a record's value."""

    def __init__(self, field: TagField) -> None:
        self._field = field
        kind = msgspec.defstruct(
            "_Tag",
            [("tag", Any, msgspec.UNSET)],
            rename={"tag": field.name},
            array_like=field.array,
        )
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._decode = cast("Callable[[bytes], Any]", decoder.decode)

    def read(self, record: Record) -> object:
        """The tag; ``msgspec.UNSET`` if the value has none. Raises DecodeError."""
        value = record.value
        assert value is not None
        try:
            tag: object = self._decode(value).tag
            hash(tag)
        except TypeError:
            return msgspec.UNSET  # a list or an object
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            failure = decode_error(record, f'the tag "{self._field.name}" cannot be read', error)
        else:
            return tag
        raise failure


def _is_struct(annotation: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _tags_of_class(annotation: object) -> dict[TagField, frozenset[object]]:
    if _is_struct(annotation):
        config = annotation.__struct_config__
        if config.tag is None or config.tag_field is None:
            return {}
        return {TagField(config.tag_field, config.array_like): frozenset([config.tag])}
    found: dict[TagField, frozenset[object]] = {}
    fields: object = cast("object", getattr(annotation, "__pydantic_fields__", None))
    if fields is None and hasattr(annotation, "__pydantic_validator__"):
        # Models of pydantic before 2.10.
        fields = cast("object", getattr(annotation, "model_fields", None))
    if isinstance(fields, dict):
        for name, field in cast("dict[str, Any]", fields).items():
            if get_origin(field.annotation) is Literal:
                alias = field.validation_alias or field.alias
                key = alias if isinstance(alias, str) else name
                values = (
                    cast("object", get_arg.value) if isinstance(get_arg, Enum) else get_arg
                    for get_arg in get_args(field.annotation)
                )
                found[TagField(key)] = frozenset(values)
    return found
