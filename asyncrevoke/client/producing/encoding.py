"""Encodes the values, keys and headers of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.printable import error_text
from asyncrevoke.client.producing.message import PublishedRecord

if TYPE_CHECKING:
    from asyncrevoke.client.producing.message import Headers

_json = msgspec.json.Encoder()


def encode_value(topic: str, value: object) -> bytes | None:
    """Encode a value: bytes and None unchanged, text as UTF-8, all else as JSON.

    Raises PublishError, with the cause, for a value that cannot be encoded.
    """
    if value is None or type(value) is bytes:
        return value
    try:
        return value_bytes(value, _json)
    except Exception as error:
        raise PublishError(
            topic, f"a {type(value).__name__} cannot be encoded: {error_text(error)}"
        ) from error


def value_bytes(value: object, json: msgspec.json.Encoder) -> bytes:
    """Bytes unchanged, text as UTF-8, a pydantic model by its own method, all else by ``json``.
    Raises what these raise."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    to_json = getattr(value, "model_dump_json", None)
    return str(to_json()).encode() if callable(to_json) else json.encode(value)


def encode_record(
    topic: str,
    value: object,
    key: bytes | str | None,
    headers: Headers,
    partition: int | None,
    timestamp: int | None,
) -> PublishedRecord:
    """Encode a record to write. Raises PublishError."""
    return PublishedRecord(
        topic,
        partition,
        encode_key(topic, key),
        encode_value(topic, value),
        encode_headers(topic, headers) if headers else [],
        timestamp,
    )


def encode_key(topic: str, key: object) -> bytes | None:
    """Encode a key: bytes and None unchanged, text as UTF-8. Raises PublishError."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, (str, bytes, bytearray)):
        return _text(topic, "key", key)
    raise PublishError(topic, f"the key is a {type(key).__name__}: it must be bytes, str or None")


def encode_headers(
    topic: str,
    headers: Headers,
) -> list[tuple[str, bytes | None]]:
    """Encode the values of headers as bytes. Raises PublishError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        match cast("object", pair):
            case (str() as name, None):
                encoded.append((name, None))
            case (str() as name, (str() | bytes() | bytearray()) as value):
                encoded.append((name, _text(topic, f"header {name}", value)))
            case _:
                raise PublishError(
                    topic,
                    f"a header is a {_kinds(pair)}: it must be a pair of a str and bytes, str or "
                    "None",
                )
    return encoded


def _kinds(pair: object) -> str:
    """The types of a header: an error does not show its content."""
    if isinstance(pair, tuple):
        kinds = (type(part).__name__ for part in cast("tuple[object, ...]", pair))
        return f"tuple of {', '.join(kinds)}"
    return type(pair).__name__


def _text(topic: str, what: str, value: str | bytes | bytearray) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else bytes(value)
    except UnicodeEncodeError as error:
        raise PublishError(topic, f"the {what} cannot be encoded: {error}") from error
