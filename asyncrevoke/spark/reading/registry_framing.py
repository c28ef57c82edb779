"""The framing that the serializers of a schema registry write: a zero byte, the schema id in four
bytes (big-endian), and the payload."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

FRAMING_SIZE: Final = 5
"""Bytes before the payload."""
_FRAMING: Final = struct.Struct(">xi")


class FramedValue(NamedTuple):
    """Both are None for a value without this framing."""

    schema_id: int | None
    payload: bytes | None


def framed_value(value: bytes | None) -> FramedValue:
    """The schema id and the payload of a value. A negative id is not framing."""
    if value is None or len(value) < FRAMING_SIZE or value[0] != 0:
        return FramedValue(None, None)
    (schema_id,) = _FRAMING.unpack_from(value)
    if schema_id < 0:
        return FramedValue(None, None)
    return FramedValue(schema_id, value[FRAMING_SIZE:])
