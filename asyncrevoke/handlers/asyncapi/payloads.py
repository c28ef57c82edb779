"""What the values of records are: those that a handler receives, and those that it returns."""

from __future__ import annotations

import inspect
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin

from asyncrevoke.client.config.annotations import expanded, members, metadata
from asyncrevoke.client.config.record_function import function_name
from asyncrevoke.client.model import Record
from asyncrevoke.client.producing.message import Message
from asyncrevoke.handlers.asyncapi.json_schemas import identifier
from asyncrevoke.handlers.asyncapi.objects import Schema
from asyncrevoke.handlers.decoding.arrow_values import columns_kind
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder
from asyncrevoke.handlers.decoding.decoders import annotation_name
from asyncrevoke.handlers.decoding.outages import AsksServer
from asyncrevoke.handlers.policy.results import return_annotation

if TYPE_CHECKING:
    from asyncrevoke.handlers.asyncapi.json_schemas import JsonSchemas, Mode
    from asyncrevoke.handlers.policy.registration import Handler

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_OF_BYTES: Final[tuple[object, ...]] = (Record, bytes, bytearray, memoryview)
_NOT_KNOWN: Final[tuple[object, ...]] = (Any, Message, object)
# What a generator, or a sync function that returns a coroutine, is annotated to return.
_OF_FIRST: Final = (AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator)
_OF_LAST: Final = (Awaitable, Coroutine)


class Payload(NamedTuple):
    """The values of records of one kind. ``content_type`` is None for a null value.

    ``has_schema_id``: they begin with the id of a schema in a registry.
    """

    name: str
    content_type: str | None
    schema: Schema
    has_schema_id: bool = False


def received(handler: Handler, schemas: JsonSchemas) -> list[Payload]:
    """The values that a handler receives, each kind of a union by itself."""
    decoder, annotation = handler.decoder, handler.value_type
    columns = handler.batch is not None and handler.batch.columns is not None
    if isinstance(decoder, ColumnDecoder):
        return [_binary(f"A value that {type(decoder).__name__} decodes.")]
    if columns or annotation is None:
        annotation = bytes
    if decoder is not None and not {Record, bytes}.intersection(members(annotation)):
        what = f"A value that {function_name(decoder)} decodes to {annotation_name(annotation)}."
        payload = _binary(what, identifier(annotation_name(annotation)))
        return [payload._replace(has_schema_id=isinstance(decoder, AsksServer))]
    return _payloads(annotation, schemas, "validation")


def published(handler: Handler, schemas: JsonSchemas) -> list[Payload]:
    """The values that a handler publishes, each kind of a union by itself."""
    if handler.encoder is not None:
        payload = _binary(f"A value that {function_name(handler.encoder)} encodes.")
        return [payload._replace(has_schema_id=isinstance(handler.encoder, AsksServer))]
    annotation = return_annotation(handler.function)
    while get_origin(annotation) in (*_OF_FIRST, *_OF_LAST):
        given = get_args(annotation)
        annotation = given[-1 if get_origin(annotation) in _OF_LAST else 0]
    if annotation is inspect.Signature.empty:
        return [_binary("A value that the handler returns.")]
    payloads: list[Payload] = []
    for result in _results(annotation):
        of_message = get_origin(result) is Message
        value = get_args(result)[0] if of_message else result
        found = _payloads(value, schemas, "serialization", tombstones=of_message)
        payloads += [payload for payload in found if payload not in payloads]
    return payloads


def _results(annotation: object) -> list[object]:
    """The types of single results; those in a list are published one by one, None is not."""
    found: list[object] = []
    for returned in members(annotation):
        inside = get_args(returned)
        found += members(inside[0]) if get_origin(returned) is list else (returned,)
    return [result for result in found if result is not types.NoneType]


def _payloads(
    annotation: object, schemas: JsonSchemas, mode: Mode, *, tombstones: bool = True
) -> list[Payload]:
    of = members(annotation)
    values = [member for member in of if member is not types.NoneType]
    if metadata(annotation) or not all(map(_has_name, values)):
        values = [annotation] if len(values) > 1 or metadata(annotation) else values
    payloads = [_payload(value, schemas, mode) for value in values]
    if tombstones and types.NoneType in of:
        tombstone: Schema = {"type": "null", "description": "A null value (a tombstone)."}
        payloads.append(Payload("Tombstone", None, tombstone))
    return payloads


def _has_name(annotation: object) -> bool:
    return hasattr(annotation, "__annotations__") or hasattr(annotation, "__struct_fields__")


def _payload(annotation: object, schemas: JsonSchemas, mode: Mode) -> Payload:
    plain = members(annotation)[0]
    if any(plain is kind for kind in _OF_BYTES):
        return _binary("A value that is not decoded.")
    if any(plain is kind for kind in _NOT_KNOWN) or columns_kind(plain) is not None:
        return _binary("A value that the handler returns.")
    if plain is str:
        return Payload("Text", _TEXT, schemas.of(annotation, mode))
    name = identifier(annotation_name(expanded(annotation)))
    return Payload(name, JSON, schemas.of(annotation, mode))


def _binary(description: str, name: str = "Bytes") -> Payload:
    schema: Schema = {"type": "string", "format": "binary", "description": description}
    return Payload(name, BINARY, schema)
