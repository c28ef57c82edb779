"""Decodes a record's value by the annotation of its handler's first parameter."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, Literal, Protocol, TypeAlias, Union, cast, get_args, get_origin

import msgspec

from asyncrevoke.client.config.annotations import expanded, members, metadata, the_type
from asyncrevoke.client.config.record_function import check_record_function, function_name
from asyncrevoke.client.errors import ConfigError, DecodeError
from asyncrevoke.client.model import Record
from asyncrevoke.client.printable import is_caught_by
from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder
from asyncrevoke.handlers.decoding.decode_failure import decode_error

# Returns the value of a record, or raises DecodeError. A user's decoder may be async.
Decoder: TypeAlias = Callable[[Record], object]
# What a handler may have as its decoder: one of columns only if it receives these.
HandlerDecoder: TypeAlias = Decoder | ColumnDecoder
# By the names of their classes, because these packages may not be installed: errors of a
# connection that are no OSError.
_OF_CONNECTIONS: Final = frozenset(
    (
        "httpx.TransportError",
        "httpx2.TransportError",
        "aiohttp.ClientConnectionError",
        "urllib3.HTTPError",
    )
)
# Attributes of errors that have an HTTP status.
_STATUSES: Final = ("http_status_code", "status_code", "status", "code")
_TOO_MANY_REQUESTS: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERRORS: Final = range(500, 600)
_HTTP: Final = range(100, 600)
# An error that causes itself has no end.
_MOST_CAUSES: Final = 8


def is_temporary(error: BaseException) -> bool:
    """Whether the same decoder may decode the same value later.

    True for an OSError (ConnectionError and TimeoutError are ones), an error of a connection of
    httpx, aiohttp or urllib3, and an HTTP status of 408, 429 or 5xx; also if such an error is the
    cause. False for any other HTTP status.
    """
    return any(map(_is_temporary, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield cause
        context = None if cause.__suppress_context__ else cause.__context__
        cause = context if cause.__cause__ is None else cause.__cause__


def _is_temporary(error: BaseException) -> bool:
    try:
        status, is_of_connection = http_status(error), _is_of_connection(error)
    except BaseException:  # noqa: BLE001 - a class of the user may raise when it is asked
        status, is_of_connection = None, False
    if status is not None:
        return status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS) or status in _SERVER_ERRORS
    return is_of_connection or is_caught_by(error, OSError)


def _is_of_connection(error: BaseException) -> bool:
    return any(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in _OF_CONNECTIONS
        for kind in type(error).__mro__
    )


def http_status(error: BaseException) -> int | None:
    """The HTTP status of an error, or of its response; None if it has none."""
    for source in (error, getattr(error, "response", None)):
        for name in _STATUSES:
            status = cast("object", getattr(source, name, None))
            if isinstance(status, int) and status in _HTTP:
                return int(status)
    return None


class _PydanticModel(Protocol):
    def model_validate_json(self, json_data: bytes, /) -> object: ...


# What a value is without JSON. In a union, JSON would decide what a value is.
_WITHOUT_JSON = (Record, bytes, bytearray, memoryview, str)
# Their records and messages are not values. To msgspec, some are dataclasses.
_OTHER_CLIENTS = ("aiokafka", "confluent_kafka", "kafka")


def decoder_for(annotation: object, whose: str) -> Decoder:
    """Make the decoder of an annotation, once, at registration.

    ``Record`` receives the record, ``bytes`` and ``bytearray`` the value, ``memoryview`` a view of
    the value without a copy, and ``str`` its UTF-8 text. Each type that pydantic or msgspec
    supports (a model, dict, dataclass, Struct, TypedDict, ...) is decoded from JSON. A null value
    (a tombstone) is None for ``T | None``, and raises DecodeError otherwise.

    A type with a name (``NewType``, ``TypeAliasType``) and ``Annotated`` are decoded as the type
    itself; ``Annotated`` may have constraints, of ``msgspec.Meta`` or of pydantic.

    Raises ConfigError, beginning with ``whose``, for an annotation that cannot be decoded.
    """
    plain = the_type(annotation)
    if plain is Record:
        return whole_record
    of = members(annotation)
    if any(map(_is_other_record, of)):
        raise ConfigError(
            f"{whose} is annotated {annotation_name(annotation)}, which is not a type of values: "
            "to receive the record, annotate it Record of asyncrevoke"
        )
    optional = types.NoneType in of
    if len(of) - optional > 1 and (mixed := [kind for kind in _WITHOUT_JSON if kind in of]):
        raise ConfigError(
            f"{whose} is annotated {annotation_name(annotation)}, which cannot be decoded: "
            f"{annotation_name(mixed[0])} is not read from JSON, and the other types are: annotate "
            "it alone, or give the handler, its Router or the Consumer a decoder="
        )
    if plain is bytes and not _is_constrained(annotation):
        return BytesDecoder(optional=optional)
    decode: _Decode
    shape = plain
    if plain is memoryview:
        return _view_decoder(optional=optional)
    if plain in (bytes, bytearray, str):
        decode = _plain_value(plain, annotation, whose)
    elif hasattr(plain, "model_validate_json") and not _is_constrained(annotation):
        # Other than an adapter, a model may refer to a class that is defined later.
        decode = cast("_PydanticModel", plain).model_validate_json
    elif has_pydantic(annotation):
        shape = _pydantic_adapter(annotation, whose)
        decode = shape.validate_json
    else:
        decode = _json_decoder(annotation, whose)
    return _decode_or_fail(decode, annotation, shape, optional=optional)


def _is_other_record(annotation: object) -> bool:
    """Whether this is a subclass of ``Record``, or a class of another client for Kafka."""
    of = get_origin(annotation) or annotation
    if not isinstance(of, type) or of is Record:
        return False
    return issubclass(of, Record) or of.__module__.partition(".")[0] in _OTHER_CLIENTS


class AsyncDecoder:
    """A user's decoder that is async. Each error is a DecodeError."""

    def __init__(self, decode: Callable[[Record], Awaitable[object]]) -> None:
        self._decode = decode

    async def __call__(self, record: Record) -> object:
        """The value. If cancelled, the decoder is cancelled."""
        try:
            return await self._decode(record)
        except DecodeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises
            failure = _decoder_failed(record, self._decode, error)
        raise failure


def custom_decoder(decode: Decoder) -> Decoder | AsyncDecoder:
    """Wrap a user's decoder, so that each error is a DecodeError. It receives tombstones, too."""
    if any(map(inspect.iscoroutinefunction, (decode, getattr(decode, "__call__", None)))):  # noqa: B004
        return AsyncDecoder(cast("Callable[[Record], Awaitable[object]]", decode))

    def decode_record(record: Record) -> object:
        failure: DecodeError | None = None
        value: object = None
        try:
            value = decode(record)
        except DecodeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises
            failure = _decoder_failed(record, decode, error)
        if failure is not None:
            raise failure
        if isinstance(value, Coroutine):
            value.close()
            raise DecodeError(
                record.topic_partition,
                record.offset,
                f"the decoder {function_name(decode)} returned a coroutine, and is not async: "
                "define it with `async def`",
            )
        return value

    return decode_record


def _decoder_failed(record: Record, decode: object, error: Exception) -> DecodeError:
    what = f"the decoder {function_name(decode)} failed"
    return decode_error(record, what, error, temporary=is_temporary(error))


def check_decoder(decoder: object) -> None:
    """Raise ConfigError, with the fix, for a value that cannot decode a record, or columns."""
    if isinstance(decoder, ColumnDecoder):
        return
    check_record_function("decoder", decoder, "value")


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


def _is_constrained(annotation: object) -> bool:
    """Whether ``Annotated`` has constraints that msgspec or pydantic check."""
    return any(
        isinstance(mark, msgspec.Meta) or _is_of_pydantic(mark) for mark in _marks(annotation)
    )


def _marks(annotation: object) -> tuple[object, ...]:
    """What stands in ``Annotated`` beside the type, or beside the types of a union."""
    found = expanded(annotation)
    if get_origin(found) in (Union, types.UnionType):
        return tuple(mark for get_arg in get_args(found) for mark in _marks(get_arg))
    return metadata(found)


def _is_of_pydantic(mark: object) -> bool:
    return type(mark).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _plain_value(plain: object, annotation: object, whose: str) -> _Decode:
    """Decodes bytes or text, and checks the constraints of ``Annotated``."""
    read: _Decode = _text if plain is str else bytearray if plain is bytearray else bytes
    if not _is_constrained(annotation):
        return read
    if has_pydantic(annotation):
        check = _pydantic_adapter(annotation, whose).validate_python
    else:

        def check(value: object, /) -> object:
            return msgspec.convert(value, cast("Any", expanded(annotation)))

    return lambda value: check(read(value))


def _text(value: bytes) -> str:
    return str(value, "utf-8")


def has_pydantic(annotation: object) -> bool:
    """Whether pydantic decodes an annotation: it has a class or a constraint of pydantic."""
    if "pydantic" not in sys.modules:
        return False
    found = expanded(annotation)
    return (
        hasattr(found, "__pydantic_validator__")
        or any(map(_is_of_pydantic, metadata(found)))
        or (get_origin(found) is not Literal and any(map(has_pydantic, get_args(found))))
    )


def _pydantic_adapter(annotation: object, whose: str) -> Any:  # noqa: ANN401 - pydantic is optional
    """The decoder of pydantic. Of an optional class, null is not a JSON value."""
    from pydantic import TypeAdapter

    plain = the_type(annotation)
    kind = expanded(annotation) if _is_constrained(annotation) else plain
    try:
        return TypeAdapter(cast("Any", kind))
    except Exception as error:  # pydantic has many, and a class of the user may raise any
        raise _undecodable(annotation, whose, error) from error


def _undecodable(annotation: object, whose: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{whose} is annotated {annotation_name(annotation)}, which cannot be decoded: {error}"
    )


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
    kind = expanded(annotation)
    try:
        foreign = _undecodable_type(msgspec.inspect.type_info(kind), set())
        decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(cast("type[object]", kind))
    except (TypeError, NameError) as error:
        raise _undecodable(annotation, whose, error) from error
    if foreign is Record:
        raise ConfigError(
            f"{whose} is annotated {annotation_name(annotation)}, and a Record is not read from "
            "JSON: annotate it Record; a handler that receives a list of records has batch=True"
        )
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
        if cls is Record or hasattr(cls, "__pydantic_validator__"):
            return cls  # to msgspec, they are a tuple with names and a dataclass without checks
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
