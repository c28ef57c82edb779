"""Responses with one field changed to an impossible value."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from fuzz.core_environment.cluster import IDS
from simulation.brokers.changing_log import ChangingLog

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
)

if TYPE_CHECKING:
    from random import Random

NUMBERS = (
    *(-(2**63), -(2**31) - 1, -(2**31), -1000, -3, -2, -1, 0, 1, 2, 3, 5, 7, 20, 21, 100),
    *(2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1),
)
NARROW = tuple(number for number in NUMBERS if -(2**31) <= number < 2**31)
# The fields of 64 bits.
WIDE = frozenset(
    ("offset", "timestamp", "high_watermark", "last_stable_offset", "log_start_offset")
)
TEXTS = (
    "",
    "orders",
    "bills",
    "other",
    ".",
    "x" * 300,
    "m-1",
    "m-2",
    "range",
    "a b",
    "\udfff",
    "é\n",
)
BLOBS = (b"", b"\0", b"\xff" * 7, bytes(16), b"\0\3\0\0\0\0", b"x" * 5000)

_ERRORS = tuple(ErrorCode)


@cache
def optional_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of a message that may be None."""
    return frozenset(
        field.name for field in msgspec.structs.fields(kind) if type(None) in get_args(field.type)
    )


def damage(draw: Random, response: Any) -> Any:
    """The same response with one field changed, anywhere in it."""
    kind = cast("type[msgspec.Struct]", type(response))
    field = draw.choice(msgspec.structs.fields(kind))
    value: object = getattr(response, field.name)
    if field.name in optional_fields(kind) and draw.random() < 0.3:
        return msgspec.structs.replace(response, **{field.name: None})
    if field.name == "records":
        return msgspec.structs.replace(response, records=_damaged_records(draw, value))
    return msgspec.structs.replace(response, **{field.name: _damaged(draw, value, field.name)})


def _damaged(draw: Random, value: Any, name: str) -> Any:
    match value:
        case ErrorCode():
            return draw.choice(_ERRORS)
        case bool():
            return not value
        case int():
            return draw.choice(NUMBERS if name in WIDE else NARROW)
        case float():
            return draw.choice((-1.0, 0.0, 1e-9, 0.5, 2**31 / 1000))
        case str():
            return draw.choice((*TEXTS, value + "x"))
        case bytes():
            return _damaged_bytes(draw, value)
        case msgspec.Struct():
            return damage(draw, value)
        case TopicPartition():
            numbers = (-1, 0, 1, 2, 2**31 - 1)
            return TopicPartition(draw.choice(("orders", "bills", "", "x")), draw.choice(numbers))
        case (bytes() | TopicPartition(), tuple() | ErrorCode()):
            # A pair of a message: an id and partitions, or a partition and an error.
            first, second = cast("tuple[object, object]", value)
            if draw.random() < 0.5:
                return (_damaged(draw, first, name), second)
            return (first, _damaged(draw, second, name))
        case tuple():
            return _damaged_items(draw, cast("tuple[object, ...]", value), name)
        case _:
            if value is None and name in ("rack", "cluster_id", "protocol_name", "member_id"):
                return draw.choice(TEXTS)
            return value


def _damaged_items(draw: Random, value: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    at = draw.randrange(len(value)) if value else 0
    match draw.randrange(7) if value else 0:
        case 0:
            return ()
        case 1:
            return (*value, value[at])
        case 2:
            return (*value[:at], *value[at + 1 :])
        case 3:
            return value[::-1]
        case _:
            item = _damaged(draw, value[at], name)
            return (*value[:at], item, *value[at + 1 :])


def _damaged_bytes(draw: Random, value: bytes) -> bytes:
    if not value or draw.random() < 0.3:
        return draw.choice((*BLOBS, *IDS.values()))
    at = draw.randrange(len(value))
    return draw.choice(
        (
            value[:at],
            value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :],
            value + b"more",
        )
    )


def _damaged_records(draw: Random, value: object) -> bytes:
    """No batch that a decoder would reject, or whose offsets go backward: wrong ones of others."""
    if draw.random() < 0.3:
        return cast("bytes", value)[:-1]
    other = ChangingLog(1)
    for _ in range(draw.randrange(1, 4)):
        other.append(draw.randrange(5), draw.randrange(3))
    return other.read(draw.randrange(other.end + 1), 10_000)
