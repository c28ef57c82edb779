"""Walks bytes from the network before kio decodes them.

Three things of kio 0.6 make this necessary:

- its reader allocates by the declared count of an array, and a count of billions in a frame of
  nine bytes ends the process: at once if the array is compact, and if not, where the system does
  not grant 16 GiB (nothing can catch that);
- an error code that it does not know fails the whole response, though it concerns one partition;
- so does an unknown tagged field, although tagged fields are how Kafka adds to a version that is
  already in use (KIP-482).

The walk follows the same schema (kio's dataclasses), copies nothing unless it has to, and visits
every element, so that a frame that passes has room for all that it declares. It costs about 1 us
per partition of a Fetch response, and records are passed without a look at them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from kio.static.protocol import Entity

E = TypeVar("E", bound="Entity")

__all__ = ["HostileFrame", "Walk", "read_entity", "varint", "walk"]


class HostileFrame(Exception):  # noqa: N818 - it names what was read
    """A frame that ends before what it declares."""


@dataclasses.dataclass(slots=True)
class Walk:
    """What was found in ``frame``: ``body`` is exactly what was walked, without the response header
    and with the edits."""

    frame: bytes
    body: bytes = b""
    # (start, end, what stands there instead), ascending
    edits: list[tuple[int, int, bytes]] = dataclasses.field(default_factory=list)
    unknown_errors: list[int] = dataclasses.field(default_factory=list)


_Step: TypeAlias = Callable[[Walk, int], int]

_FIXED: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_LARGEST_VARINT: Final = 2**32 - 1
_UNKNOWN_SERVER_ERROR: Final = (-1).to_bytes(2, "big", signed=True)
_NO_TAGS: Final = b"\0"


def walk(frame: bytes, offset: int, entity_type: type[Entity], *, tagged_header: bool) -> Walk:
    """Walk ``frame`` from ``offset``, where an ``entity_type`` should stand.

    Unknown error codes become UNKNOWN_SERVER_ERROR, with their numbers in ``unknown_errors``.
    Tagged fields, none of which our messages carry, are cut out. ``tagged_header`` says that the
    tagged fields of the response header come first. Raises ``HostileFrame``.
    """
    found = Walk(frame)
    try:
        if tagged_header:
            offset = _tags(found, offset)
            found.edits.clear()
        end = _entity(entity_type)[0](found, offset)
    except IndexError:
        raise HostileFrame(f"it ends after {len(frame)} bytes, in the middle") from None
    if end > len(frame):
        raise HostileFrame(f"it declares {end} bytes and has {len(frame)}")
    pieces: list[bytes] = []
    position = offset
    for start, stop, replacement in found.edits:
        pieces += (frame[position:start], replacement)
        position = stop
    pieces.append(frame[position:end])
    found.body = b"".join(pieces)
    return found


def read_entity(
    frame: bytes, offset: int, entity_type: type[E], *, tagged_header: bool
) -> tuple[E, Walk]:
    """Walk as :func:`walk` does, and decode exactly the bytes that were walked.

    Raises ``HostileFrame``, also if kio's decoder ends elsewhere than the walk did, and what that
    decoder raises.
    """
    from kio.serial import entity_reader  # noqa: PLC0415 - kio is loaded when it is used

    walked = walk(frame, offset, entity_type, tagged_header=tagged_header)
    entity, size = entity_reader(entity_type)(walked.body, 0)
    if size != len(walked.body):
        raise HostileFrame(f"the decoder read {size} bytes of {len(walked.body)} that were walked")
    return entity, walked


@cache
def _entity(entity_type: type[Entity]) -> tuple[_Step, int]:
    """The walk over one entity, and the fewest bytes that one takes."""
    steps: list[_Step] = []
    least = 0
    run = 0  # bytes of fixed size since the last step, passed in one go
    for field in dataclasses.fields(entity_type):
        if "tag" in field.metadata:
            continue
        kafka_type: str = field.metadata.get("kafka_type", "")
        is_array, element = _element(field.type)
        if not is_array and kafka_type in _FIXED:
            run += _FIXED[kafka_type]
            continue
        if run:
            steps.append(_skip(run))
            least += run
            run = 0
        step, size = _value(kafka_type, element, flexible=entity_type.__flexible__)
        if is_array:
            fixed = _FIXED.get(kafka_type)
            step = _array(step, size, fixed, flexible=entity_type.__flexible__)
            size = 1 if entity_type.__flexible__ else 4
        elif not kafka_type and NoneType in get_args(field.type):
            step, size = _nullable(step), 1
        steps.append(step)
        least += size
    if run:
        steps.append(_skip(run))
        least += run
    if entity_type.__flexible__:
        steps.append(_tags)
        least += 1
    return _sequence(tuple(steps)), least


def _element(declared: object) -> tuple[bool, object]:
    """Whether a field is an array, and the type of it or of its elements, None taken off."""
    options = [option for option in get_args(declared) if option is not NoneType]
    if get_origin(declared) is not tuple and NoneType in get_args(declared):
        (declared,) = options
    if get_origin(declared) is tuple:
        return True, get_args(declared)[0]
    return False, declared


def _value(kafka_type: str, element: object, *, flexible: bool) -> tuple[_Step, int]:
    if kafka_type in _FIXED:
        return _skip(_FIXED[kafka_type]), _FIXED[kafka_type]
    match kafka_type:
        case "error_code":
            return _error_code_step(), 2
        case "string" | "bytes" | "records" if flexible:
            return _compact_bytes, 1
        case "string":
            return _prefixed_bytes(2), 2
        case "bytes" | "records":
            return _prefixed_bytes(4), 4
        case "" if isinstance(element, type) and dataclasses.is_dataclass(element):
            return _entity(element)
        case _:
            raise TypeError(f"the guard knows no {kafka_type or element}")


def _sequence(steps: tuple[_Step, ...]) -> _Step:
    def sequence(found: Walk, position: int) -> int:
        for step in steps:
            position = step(found, position)
        return position

    return sequence


def _nullable(step: _Step) -> _Step:
    """A structure that may be missing: a byte that is negative for none goes before it."""

    def nullable(found: Walk, position: int) -> int:
        if found.frame[position] >= 0x80:
            return position + 1
        return step(found, position + 1)

    return nullable


def _skip(size: int) -> _Step:
    def skip(_: Walk, position: int) -> int:
        return position + size

    return skip


@cache
def _error_code_step() -> _Step:
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - kio is loaded when it is used

    known = frozenset(code.to_bytes(2, "big", signed=True) for code in ErrorCode)

    def error_code(found: Walk, position: int) -> int:
        code = found.frame[position : position + 2]
        if code not in known:
            found.edits.append((position, position + 2, _UNKNOWN_SERVER_ERROR))
            found.unknown_errors.append(int.from_bytes(code, "big", signed=True))
        return position + 2

    return error_code


def varint(frame: bytes | bytearray, position: int) -> tuple[int, int]:
    """The unsigned 32-bit number at a position, and the position after it.

    A number has one encoding, its shortest: two readers of a frame cannot disagree on where it
    ends. Raises ``HostileFrame`` for a longer encoding and for a number beyond 32 bits.
    """
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    start = position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte:
                raise HostileFrame(f"the number at byte {start} is not encoded in its fewest bytes")
            if value > _LARGEST_VARINT:
                raise HostileFrame(f"the number at byte {start} has more than 32 bits")
            return value, position + 1
    raise HostileFrame(f"the number at byte {start} has no end")


def _compact_bytes(found: Walk, position: int) -> int:
    length, position = varint(found.frame, position)
    return position + length - 1 if length else position


def _prefixed_bytes(prefix: int) -> _Step:
    def prefixed_bytes(found: Walk, position: int) -> int:
        length = _signed(found.frame, position, prefix)
        return position + prefix + max(length, 0)

    return prefixed_bytes


def _signed(frame: bytes, position: int, size: int) -> int:
    if position + size > len(frame):
        raise IndexError
    return int.from_bytes(frame[position : position + size], "big", signed=True)


def _array(step: _Step, least: int, fixed: int | None, *, flexible: bool) -> _Step:
    def array(found: Walk, position: int) -> int:
        if flexible:
            count, position = varint(found.frame, position)
            count -= 1
        else:
            count = _signed(found.frame, position, 4)
            position += 4
        if count <= 0:
            return position
        left = len(found.frame) - position
        if count * least > left:
            raise HostileFrame(f"it declares {count} elements and has {left} bytes left")
        if fixed is not None:
            return position + count * fixed
        for _ in range(count):
            position = step(found, position)
        return position

    return array


def _tags(found: Walk, position: int) -> int:
    start = position
    count, position = varint(found.frame, position)
    if not count:
        return position
    if count > len(found.frame) - position:
        raise HostileFrame(f"it declares {count} tagged fields in {len(found.frame)} bytes")
    for _ in range(count):
        _, position = varint(found.frame, position)
        size, position = varint(found.frame, position)
        position += size
    found.edits.append((start, position, _NO_TAGS))
    return position
