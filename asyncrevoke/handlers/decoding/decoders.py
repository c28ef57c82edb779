"""Decodes a record's value by the annotation of its handler's first parameter."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeAlias, Union, cast, get_args, get_origin

import msgspec

from asyncrevoke.config.record_function import check_record_function, function_name
from asyncrevoke.errors import ConfigError, DecodeError
from asyncrevoke.handlers.decoding.decode_failure import decode_error
from asyncrevoke.model import Record

# Returns the value of a record, or raises DecodeError.
Decoder: TypeAlias = Callable[[Record], object]


class _PydanticModel(Protocol):
    def model_validate_json(self, json_data: bytes, /) -> object: ...


def decoder_for(annotation: object, whose: str) -> Decoder:
    """Make the decoder of an annotation, once, at registration.

    ``Record`` receives the record, ``bytes`` the value, ``memoryview`` a view of the value without
    a copy, and ``str`` its UTF-8 text. A pydantic model, and each type that msgspec supports (dict,
    dataclass, Struct, TypedDict, ...), is decoded from JSON. A null value (a tombstone) is None for
    ``T | None``, and raises DecodeError otherwise.

    Raises ConfigError, beginning with ``whose``, for an annotation that cannot be decoded.
    """
    if annotation is Record:
        return whole_record
    plain, optional = _without_none(annotation)
    if plain is bytes:
        return BytesDecoder(optional=optional)
    decode: _Decode
    if plain is memoryview:
        return _view_decoder(optional=optional)
    if plain is str:
        decode = _text
    elif isinstance(plain, type) and hasattr(plain, "__pydantic_validator__"):
        decode = cast("_PydanticModel", plain).model_validate_json
    else:
        decode = _json_decoder(annotation, whose)
    return _decode_or_fail(decode, annotation, plain, optional=optional)


def custom_decoder(decode: Decoder) -> Decoder:
    """Wrap a user's decoder, so that each error is a DecodeError. It receives tombstones, too."""
    name = function_name(decode)

    def decode_record(record: Record) -> object:
        failure: DecodeError | None = None
        value: object = None
        try:
            value = decode(record)
        except DecodeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises
            failure = decode_error(record, f"the decoder {name} failed", error)
        if failure is not None:
            raise failure
        if isinstance(value, Coroutine):
            value.close()
            raise DecodeError(
                record.topic_partition,
                record.offset,
                f"the decoder {name} returned a coroutine: a decoder is sync; annotate the "
                "handler's first parameter Record, and await what decodes in the handler",
            )
        return value

    return decode_record


def check_decoder(decoder: object) -> None:
    """Raise ConfigError, with the fix, for a value that cannot decode a record."""
    instead = "annotate the handler's first parameter Record, and await what decodes in the handler"
    check_record_function("decoder", decoder, "value", instead)


def annotation_name(annotation: object) -> str:
    """The source text of an annotation."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


_Decode: TypeAlias = Callable[[bytes], object]


def whole_record(record: Record) -> object:
    """A decoder that returns the record."""
    return record


class BytesDecoder:
    """A decoder that returns the value as bytes."""

    def __init__(self, *, optional: bool) -> None:
        self._optional = optional

    def __call__(self, record: Record) -> object:
        """Raises DecodeError for a null value, unless ``optional``."""
        if record.value is None and not self._optional:
            raise _tombstone(record, bytes)
        # With value_as="view" it is a memoryview.
        return None if record.value is None else bytes(record.value)


def _view_decoder(*, optional: bool) -> Decoder:
    def decode_view(record: Record) -> object:
        if record.value is None and not optional:
            raise _tombstone(record, memoryview)
        return record.view

    return decode_view


def _text(value: bytes) -> str:
    return str(value, "utf-8")


def _without_none(annotation: object) -> tuple[object, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    members = get_args(annotation)
    rest = [member for member in members if member is not types.NoneType]
    return (rest[0] if len(rest) == 1 else annotation), len(rest) < len(members)


def _decode_or_fail(
    decode: _Decode, annotation: object, plain: object, *, optional: bool
) -> Decoder:
    def decode_value(record: Record) -> object:
        value = record.value
        if value is None:
            if optional:
                return None
            raise _tombstone(record, annotation)
        try:
            return decode(bytes(value))
        # msgspec, pydantic and UTF-8 raise ValueError; a hook of a user's type may raise any other.
        except Exception as error:  # noqa: BLE001
            what = f"the value does not decode as {annotation_name(annotation)}"
            failure = decode_error(record, what, error, plain)
        raise failure

    return decode_value


def _tombstone(record: Record, annotation: object) -> DecodeError:
    name = annotation_name(annotation)
    return DecodeError(
        record.topic_partition,
        record.offset,
        f"the value is null (a tombstone) and {name} is expected: "
        f"annotate `{name} | None` to handle tombstones",
    )


def _json_decoder(annotation: object, whose: str) -> Callable[[bytes], object]:
    try:
        foreign = _undecodable_type(msgspec.inspect.type_info(annotation), set())
        decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(
            cast("type[object]", annotation)
        )
    except (TypeError, NameError) as error:
        raise ConfigError(
            f"{whose} is annotated {annotation_name(annotation)}, which cannot be decoded: {error}"
        ) from error
    if foreign is not None:
        raise ConfigError(
            f"{whose} is annotated {annotation_name(annotation)}, and {annotation_name(foreign)} "
            "cannot be decoded from JSON: use bytes, str, dict, a dataclass, a msgspec.Struct or a "
            "pydantic model, or give the handler, its Router or the Consumer a decoder="
        )
    return decoder.decode


def _undecodable_type(info: object, seen: set[type]) -> object | None:
    """The first type inside a type that msgspec cannot decode; None if it can decode all."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if isinstance(info, tuple):
        parts = cast("tuple[object, ...]", info)
    elif isinstance(info, msgspec.inspect.Field):
        parts = (info.type,)
    elif isinstance(info, msgspec.inspect.Type):
        cls = getattr(info, "cls", None)
        if isinstance(cls, type):
            if cls in seen:
                return None
            seen.add(cls)
        parts = tuple(getattr(info, name) for name in info.__struct_fields__ if name != "cls")
    else:
        return None
    for part in parts:
        foreign = _undecodable_type(part, seen)
        if foreign is not None:
            return foreign
    return None
