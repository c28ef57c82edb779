"""Requests whose responses are used as kio decodes them, in the preferred version.

In lower versions, requests lose the fields that these do not have, and responses get them with the
values that stand for nothing.
"""

# Fields of kio's dataclasses are of any type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from asyncrevoke.client.protocol.dialects.dialect import Dialect, make
from asyncrevoke.client.protocol.messages import Entities, EntityRequest, EntityResponse

if TYPE_CHECKING:
    from kio.static.protocol import Entity, RequestPayload, ResponsePayload


_Convert: TypeAlias = Callable[[Any], Any]


def entity(preferred: Entities, version: int) -> Dialect:
    """The version of a request whose preferred version has these types. The message has the fields
    of the preferred request that differ from kio's defaults."""
    preferred_request, preferred_response = preferred
    request_type, response_type = _of_version(preferred_request, preferred_response, version)
    if request_type is preferred_request:
        return make(request_type, _fields(request_type), response_type, _unchanged)
    build, lower = _fields(preferred_request), _conversion(preferred_request, request_type)
    raise_ = _conversion(response_type, preferred_response)

    def read(response: ResponsePayload) -> EntityResponse:
        return EntityResponse(entity=raise_(response))

    def build_lower(message: EntityRequest[object]) -> RequestPayload:
        return cast("RequestPayload", lower(build(message)))

    return make(request_type, build_lower, response_type, read)


def _fields(
    request_type: type[RequestPayload],
) -> Callable[[EntityRequest[object]], RequestPayload]:
    # Versions with topic names lack the message's ids of topics.
    lacking = {"highest_version", "topic_ids"} - {
        field.name for field in dataclasses.fields(request_type)
    }

    def build(message: EntityRequest[object]) -> RequestPayload:
        names = (name for name in message.__struct_fields__ if name not in lacking)
        return request_type(**{name: getattr(message, name) for name in names})

    return build


def _unchanged(response: ResponsePayload) -> EntityResponse:
    return EntityResponse(entity=response)


def _of_version(
    request_type: type[RequestPayload], response_type: type[ResponsePayload], version: int
) -> Entities:
    """The same types of this version. Only versions in use are imported."""
    if version == request_type.__version__:
        return request_type, response_type
    return _sibling(request_type, version), _sibling(response_type, version)


def _sibling(entity_type: type[Any], version: int) -> type[Any]:
    package, _, module = entity_type.__module__.rpartition(".")
    of_version = f"{package.rpartition('.')[0]}.v{version}.{module}"
    return cast("type[Any]", getattr(import_module(of_version), entity_type.__name__))


@cache
def _conversion(source: type[Entity], target: type[Entity]) -> _Convert:
    """A function from one version of a structure to another one. A field that the target does not
    have must have its default: the version cannot express another value."""
    from kio.serial import _introspect as schema

    theirs = {field.name: field for field in dataclasses.fields(source)}
    copied: dict[str, _Convert | None] = {}
    added: dict[str, object] = {}
    for field in dataclasses.fields(target):
        kind = schema.classify_field(field)
        if (old := theirs.pop(field.name, None)) is None:
            if field.default is dataclasses.MISSING:
                optional = schema.is_optional(field)
                added[field.name] = _nothing(field, is_array=kind.is_array, optional=optional)
        elif isinstance(kind, schema.EntityField | schema.EntityTupleField):
            of_one = _conversion(schema.classify_field(old).type_, kind.type_)
            copied[field.name] = _each(of_one) if kind.is_array else _if_any(of_one)
        else:
            copied[field.name] = None
    lost = [field for field in theirs.values() if field.default is not dataclasses.MISSING]

    def convert(value: Any) -> Any:  # noqa: ANN401 - of kio's
        for field in lost:
            if getattr(value, field.name) != field.default:
                raise TypeError(f"{target.__name__} has no {field.name}")
        fields = {
            name: getattr(value, name) if of_one is None else of_one(getattr(value, name))
            for name, of_one in copied.items()
        }
        return target(**fields, **added)

    return convert


def _each(of_one: _Convert) -> _Convert:
    return lambda values: None if values is None else tuple(map(of_one, values))


def _if_any(of_one: _Convert) -> _Convert:
    return lambda value: None if value is None else of_one(value)


def _nothing(field: dataclasses.Field[Any], *, is_array: bool, optional: bool) -> object:
    """The value of a field that a version does not have."""
    if is_array:
        return ()
    if optional:
        return None
    if field.metadata.get("kafka_type") == "string":
        return ""
    raise TypeError(f"nothing stands for a missing {field.name}")
