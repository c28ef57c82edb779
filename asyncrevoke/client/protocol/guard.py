"""Checks the structure of bytes from the network before kio decodes them.

Three properties of kio 0.6 make this necessary:

- its reader allocates by the declared count of an array. A count of billions in a frame of nine
  bytes ends the process, and nothing can catch that;
- an error code that kio does not know fails the whole response, although it is about one partition;
- so does an unknown tagged field, although Kafka extends existing versions by tagged fields
  (KIP-482). The walk cuts all of them out but those in ``USED_TAGGED_FIELDS``.

The check, called a walk, is generated from the schema that kio's decoder is generated from
(``kio.serial._introspect``). Tests compare the step of each primitive type with kio's reader. Each
length, count and marker must have its one encoding, and the decoder gets a copy that ends where
the walk ended.

A walk visits every element, so a frame that passes contains all that it declares. It costs about
1 us per partition of a Fetch response and skips the bytes of records. A count beyond what any
broker has is refused before its elements are walked.
"""

# Fields of kio's dataclasses are of any type.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from kio.static.protocol import Entity, ResponsePayload

E = TypeVar("E", bound="Entity")
R = TypeVar("R", bound="ResponsePayload")


class HostileFrame(Exception):  # noqa: N818 - it names what was read
    """A frame that ends before what it declares."""


class Walk(msgspec.Struct):
    """The result of a walk over ``frame``. ``body`` is what was walked, without the response header
    and with the edits applied."""

    frame: bytes
    body: bytes = b""
    # Where the body begins in the frame.
    start: int = 0
    # Start, end and replacement of each, ascending.
    edits: list[tuple[int, int, bytes]] = []
    unknown_errors: list[int] = []
    # How many structures of each limited type the arrays declare.
    counts: dict[str, int] = {}
    # The end of each array of structures that is not empty, by its start; None: not collected.
    ends: dict[int, int] | None = None


_Step: TypeAlias = Callable[[Walk, int], int]

_FIXED: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
# A member has at most 100,000 partitions, and ``core/io/response_checks.py`` accepts 1,000 that
# were not requested.
_MOST_PARTITIONS: Final = 101_000
_MOST_BROKERS: Final = 10_000
# Kafka 4.4 has fewer than a hundred.
MOST_APIS: Final = 1_000
_SMALLEST_BATCH: Final = 61


class _Limit(Value, frozen=True):
    """How many structures of a type one frame may have: ``most``, and one more for each
    ``bytes_each`` bytes of the frame, if that is set."""

    most: int
    bytes_each: int = 0


# Of the types that are small enough to be millions in a frame, and that no broker has so many of.
# A walk takes 1 to 3 us for each, and the decoder several times as long.
_LIMITS: Final[Mapping[str, _Limit]] = {
    # Of topics and partitions that were requested or assigned.
    "FetchableTopicResponse": _Limit(_MOST_PARTITIONS),
    "PartitionData": _Limit(_MOST_PARTITIONS),
    "ListOffsetsTopicResponse": _Limit(_MOST_PARTITIONS),
    "ListOffsetsPartitionResponse": _Limit(_MOST_PARTITIONS),
    "OffsetCommitResponseTopic": _Limit(_MOST_PARTITIONS),
    "OffsetCommitResponsePartition": _Limit(_MOST_PARTITIONS),
    # Its partitions may be those of a whole group.
    "OffsetFetchResponseTopic": _Limit(_MOST_PARTITIONS),
    "OffsetFetchResponseTopics": _Limit(_MOST_PARTITIONS),
    "DescribeShareGroupOffsetsResponseTopic": _Limit(_MOST_PARTITIONS),
    "DescribeShareGroupOffsetsResponsePartition": _Limit(_MOST_PARTITIONS),
    "AlterShareGroupOffsetsResponseTopic": _Limit(_MOST_PARTITIONS),
    "AlterShareGroupOffsetsResponsePartition": _Limit(_MOST_PARTITIONS),
    "DeleteShareGroupOffsetsResponseTopic": _Limit(_MOST_PARTITIONS),
    "OffsetForLeaderTopicResult": _Limit(_MOST_PARTITIONS),
    "EpochEndOffset": _Limit(_MOST_PARTITIONS),
    "TopicProduceResponse": _Limit(_MOST_PARTITIONS),
    "PartitionProduceResponse": _Limit(_MOST_PARTITIONS),
    "BatchIndexAndErrorMessage": _Limit(_MOST_PARTITIONS),
    # Transactions that were open at one time, and those that have a batch in the response.
    "AbortedTransaction": _Limit(100_000, _SMALLEST_BATCH),
    # A broker lets a share group lock at most 4,000 records of a partition.
    "ShareFetchableTopicResponse": _Limit(_MOST_PARTITIONS),
    "ShareAcknowledgeTopicResponse": _Limit(_MOST_PARTITIONS),
    "AcquiredRecords": _Limit(400_000),
    # Of the requests that a broker knows.
    "ApiVersion": _Limit(MOST_APIS),
    "NodeEndpoint": _Limit(_MOST_BROKERS),
    "MetadataResponseBroker": _Limit(_MOST_BROKERS),
    # Of one group.
    "JoinGroupResponseMember": _Limit(100_000),
    "MemberResponse": _Limit(1_000),
    "DescribedGroupMember": _Limit(100_000),
    "DescribedGroup": _Limit(1_000),
    "OffsetFetchResponseGroup": _Limit(1_000),
    "DescribeShareGroupOffsetsResponseGroup": _Limit(1_000),
}
# The tagged fields that are decoded: those of a Fetch response that name the leader (KIP-951), and
# the finalized features in ApiVersions (KIP-584).
USED_TAGGED_FIELDS: Final = frozenset(("current_leader", "finalized_features", "node_endpoints"))
_LARGEST_VARINT: Final = 2**32 - 1
_UNKNOWN_SERVER_ERROR: Final = (-1).to_bytes(2, "big", signed=True)
# The marker before a structure that may be null.
_ABSENT: Final = 0xFF
_PRESENT: Final = 1


def walk(
    frame: bytes,
    offset: int,
    entity_type: type[Entity],
    header_type: type[Entity] | None = None,
    ends: dict[int, int] | None = None,
) -> Walk:
    """Walk an ``entity_type`` at ``offset`` in ``frame``, after a ``header_type`` if one is given.

    Unknown error codes are replaced by UNKNOWN_SERVER_ERROR and listed in ``unknown_errors``.
    Tagged fields that are not used are cut out. ``ends`` receives where arrays of structures end in
    ``frame``, those in tagged fields left out. Raises ``HostileFrame``.
    """
    found = Walk(frame, ends=ends)
    try:
        if header_type is not None:
            offset = _entity(header_type)[0](found, offset)
            found.edits.clear()
        end = _entity(entity_type)[0](found, offset)
    except IndexError:
        raise HostileFrame(f"it ends after {len(frame)} bytes, in the middle") from None
    if end > len(frame):
        raise HostileFrame(f"it declares {end} bytes and has {len(frame)}")
    found.start = offset
    found.body = _edited(found, offset, end)
    return found


def _edited(found: Walk, start: int, end: int) -> bytes:
    """These bytes of the frame with the edits applied."""
    pieces: list[bytes] = []
    position = start
    for first, stop, replacement in found.edits:
        pieces += (found.frame[position:first], replacement)
        position = stop
    pieces.append(found.frame[position:end])
    return b"".join(pieces)


def read_response(frame: bytes, response_type: type[R]) -> tuple[R, Walk]:
    """Walk and decode a response frame, header included. Raises ``HostileFrame``."""
    return _decode(walk(frame, 0, response_type, response_type.__header_schema__), response_type)


def read_entity(data: bytes, offset: int, entity_type: type[E]) -> tuple[E, Walk]:
    """Walk an entity and decode the bytes that were walked.

    Raises ``HostileFrame``, also if kio's decoder fails or stops elsewhere than the walk.
    """
    return _decode(walk(data, offset, entity_type), entity_type)


def _decode(walked: Walk, entity_type: type[E]) -> tuple[E, Walk]:
    # kio is loaded when it is used.
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    try:
        entity, size = entity_reader(entity_type)(walked.body, 0)
    except (SerialError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise HostileFrame(f"{type(error).__name__}: {error}") from error
    if size != len(walked.body):
        raise HostileFrame(f"the decoder read {size} bytes of {len(walked.body)} that were walked")
    return entity, walked


@cache
def _entity(entity_type: type[Entity]) -> tuple[_Step, int]:
    """The walk over one entity, and the least size of one in bytes."""
    # kio generates its decoder from the same functions, so both read the same schema.
    from kio.serial import _introspect as schema

    flexible = entity_type.__flexible__
    steps: list[_Step] = []
    used: dict[int, _Step] = {}
    least = 0
    run = 0  # bytes of fixed size since the last step, passed in one go
    for field in dataclasses.fields(entity_type):
        if (tag := schema.get_field_tag(field)) is not None:
            if field.name in USED_TAGGED_FIELDS:
                used[tag] = _tagged_structures(field)
            continue
        kind, optional = schema.classify_field(field), schema.is_optional(field)
        fixed: int | None = None
        limited: str | None = None
        if isinstance(kind, schema.EntityField | schema.EntityTupleField):
            step, size = _entity(kind.type_)
            limited = kind.type_.__name__ if kind.type_.__name__ in _LIMITS else None
        else:
            kafka_type = schema.get_schema_field_type(field)
            fixed = _FIXED.get(kafka_type)
            step, size = _primitive(kafka_type, flexible=flexible)
        if kind.is_array:
            step = _array(step, size, fixed, limited, flexible=flexible, nullable=optional)
            size = 1 if flexible else 4
        elif fixed is not None:
            run += fixed
            continue
        elif optional and isinstance(kind, schema.EntityField):
            step, size = _nullable(step), 1
        if run:
            steps.append(_skip(run))
            least += run
            run = 0
        steps.append(step)
        least += size
    if run:
        steps.append(_skip(run))
        least += run
    if flexible:
        steps.append(_tags(used))
        least += 1
    return _sequence(tuple(steps)), least


def _tagged_structures(field: dataclasses.Field[object]) -> _Step:
    """The walk over the value of a tagged field: a structure, or an array of structures."""
    from kio.serial import _introspect as schema

    kind = schema.classify_field(field)
    if not isinstance(kind, schema.EntityField | schema.EntityTupleField):
        raise TypeError(f"the guard cannot walk the tagged field {field.name}")
    step, size = _entity(kind.type_)
    if not kind.is_array:
        return step
    limited = kind.type_.__name__ if kind.type_.__name__ in _LIMITS else None
    return _array(step, size, None, limited, flexible=True, nullable=False)


def _primitive(kafka_type: str, *, flexible: bool) -> tuple[_Step, int]:
    """The walk over one value, and the least size of one in bytes."""
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
        case _:
            raise TypeError(f"the guard knows no {kafka_type}")


def _sequence(steps: tuple[_Step, ...]) -> _Step:
    def sequence(found: Walk, position: int) -> int:
        for step in steps:
            position = step(found, position)
        return position

    return sequence


def _nullable(step: _Step) -> _Step:
    """A structure that may be null."""

    def nullable(found: Walk, position: int) -> int:
        marker = found.frame[position]
        if marker == _ABSENT:
            return position + 1
        if marker != _PRESENT:
            raise HostileFrame(
                f"byte {position} says neither that a structure follows nor that not"
            )
        return step(found, position + 1)

    return nullable


def _skip(size: int) -> _Step:
    def skip(_: Walk, position: int) -> int:
        return position + size

    return skip


@cache
def _error_code_step() -> _Step:
    from kio.schema.errors import ErrorCode

    known = frozenset(code.to_bytes(2, "big", signed=True) for code in ErrorCode)

    def error_code(found: Walk, position: int) -> int:
        code = found.frame[position : position + 2]
        if code not in known:
            found.edits.append((position, position + 2, _UNKNOWN_SERVER_ERROR))
            found.unknown_errors.append(int.from_bytes(code, "big", signed=True))
        return position + 2

    return error_code


def varint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    """The unsigned 32-bit number at a position, and the position after it.

    Raises ``HostileFrame`` for an encoding that is not the shortest, so that two readers cannot
    disagree on where it ends, and for a number of more than 32 bits.
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
        if length < -1:
            raise HostileFrame(f"the length at byte {position} is {length}")
        return position + prefix + max(length, 0)

    return prefixed_bytes


def _signed(frame: bytes, position: int, size: int) -> int:
    if position + size > len(frame):
        raise IndexError
    return int.from_bytes(frame[position : position + size], "big", signed=True)


def _array(
    step: _Step,
    least: int,
    fixed: int | None,
    limited: str | None,
    *,
    flexible: bool,
    nullable: bool,
) -> _Step:
    fewest = -1 if nullable else 0

    def array(found: Walk, position: int) -> int:
        start = position
        if flexible:
            count, position = varint(found.frame, position)
            count -= 1
        else:
            count = _signed(found.frame, position, 4)
            position += 4
        if count <= 0:
            if count < fewest:
                raise HostileFrame(f"the count at byte {start} is {count}")
            return position
        left = len(found.frame) - position
        if count * least > left:
            raise HostileFrame(f"it declares {count} elements and has {left} bytes left")
        if fixed is not None:
            return position + count * fixed
        if limited is not None:
            _count(found, limited, count)
        for _ in range(count):
            position = step(found, position)
        if found.ends is not None:
            found.ends[start] = position
        return position

    return array


def _count(found: Walk, name: str, count: int) -> None:
    """Count the structures of an array before any is walked."""
    limit = _LIMITS[name]
    most = limit.most
    if limit.bytes_each:
        most += len(found.frame) // limit.bytes_each
    found.counts[name] = total = found.counts.get(name, 0) + count
    if total > most:
        raise HostileFrame(f"it declares more than {most} structures {name}")


def _tags(used: Mapping[int, _Step]) -> _Step:
    """The tagged fields of a structure, ascending as KIP-482 requires; ``used`` walks those that
    are kept."""

    def tags(found: Walk, position: int) -> int:
        frame, start, last = found.frame, position, -1
        count, position = varint(frame, position)
        if not count:
            return position
        if count > len(frame) - position:
            raise HostileFrame(f"it declares {count} tagged fields in {len(frame)} bytes")
        kept: list[bytes] = []
        for _ in range(count):
            tag, position = varint(frame, position)
            size, position = varint(frame, position)
            if tag <= last:
                raise HostileFrame(f"tagged field {tag} follows tagged field {last}")
            last = tag
            if (step := used.get(tag)) is not None:
                value = _tagged_value(frame[position : position + size], size, step)
                kept.append(varint_bytes(tag) + varint_bytes(len(value)) + value)
            position += size
        replacement = b"".join((varint_bytes(len(kept)), *kept))
        if replacement != frame[start:position]:
            found.edits.append((start, position, replacement))
        return position

    return tags


def _tagged_value(value: bytes, size: int, step: _Step) -> bytes:
    """The value without the tagged fields in it that are not used."""
    found = Walk(value)
    if step(found, 0) != size or len(value) != size:
        raise HostileFrame(f"a tagged field of {size} bytes is not what its schema says")
    return _edited(found, 0, size)


def varint_bytes(number: int) -> bytes:
    """The shortest encoding of an unsigned number."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
