"""kafka-python's codec of the responses that asyncrevoke decodes, and how the two compare.

kafka-python reads Kafka's own message definitions, kio's dataclasses are generated from them: the
two share no code. Fields are compared in the order in which they stand in the message.
"""

# kafka-python's definitions have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportOptionalSubscript=false
from __future__ import annotations

import dataclasses
import datetime
import io
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

# kafka-python reads its definitions by a function that Python 3.11 deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_header import ResponseHeader
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas import StructField, load_json

from asyncrevoke.client.protocol.guard import USED_TAGGED_FIELDS

if TYPE_CHECKING:
    from kio.static.protocol import Entity

    from asyncrevoke.client.protocol.guard import Walk

_UNKNOWN_ERROR = -1
_UNKNOWN_ERROR_BYTES = b"\xff\xff"
_ERRORS = frozenset(map(int, ErrorCode))


def _field(name: str, kind: str, *fields: dict[str, Any], null: bool = False) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "type": kind, "versions": "0+"}
    if fields:
        described["fields"] = list(fields)
    if null:
        described |= {"nullableVersions": "0+", "default": "null"}
    return described


_ASSIGNED = _field(
    "TopicPartitions",
    "[]TopicPartitions",
    _field("TopicId", "uuid"),
    _field("Partitions", "[]int32"),
)
_DESCRIBED_ASSIGNMENT = (
    _field(
        "TopicPartitions",
        "[]TopicPartitions",
        _field("TopicId", "uuid"),
        _field("TopicName", "string"),
        _field("Partitions", "[]int32"),
    ),
)
_ERROR = (_field("ErrorCode", "int16"), _field("ErrorMessage", "string", null=True))
_OF_LEADER = (_field("LeaderId", "int32"), _field("LeaderEpoch", "int32"))
_ENDPOINTS = _field(
    "NodeEndpoints",
    "[]NodeEndpoint",
    _field("NodeId", "int32"),
    _field("Host", "string"),
    _field("Port", "int32"),
    _field("Rack", "string", null=True),
)
_THROTTLED = _field("ThrottleTimeMs", "int32")
# Messages of KIP-848 and KIP-932, which kafka-python does not have, as Kafka's protocol guide lists
# them.
_NOT_IN_KAFKA_PYTHON = {
    "ShareGroupHeartbeatResponse": (
        _THROTTLED,
        *_ERROR,
        _field("MemberId", "string", null=True),
        _field("MemberEpoch", "int32"),
        _field("HeartbeatIntervalMs", "int32"),
        _field("Assignment", "Assignment", _ASSIGNED, null=True),
    ),
    "ShareGroupDescribeResponse": (
        _THROTTLED,
        _field(
            "Groups",
            "[]DescribedGroup",
            *_ERROR,
            _field("GroupId", "string"),
            _field("GroupState", "string"),
            _field("GroupEpoch", "int32"),
            _field("AssignmentEpoch", "int32"),
            _field("AssignorName", "string"),
            _field(
                "Members",
                "[]Member",
                _field("MemberId", "string"),
                _field("RackId", "string", null=True),
                _field("MemberEpoch", "int32"),
                _field("ClientId", "string"),
                _field("ClientHost", "string"),
                _field("SubscribedTopicNames", "[]string"),
                _field("Assignment", "Assignment", *_DESCRIBED_ASSIGNMENT),
            ),
            _field("AuthorizedOperations", "int32"),
        ),
    ),
    "ShareFetchResponse": (
        _THROTTLED,
        *_ERROR,
        _field("AcquisitionLockTimeoutMs", "int32"),
        _field(
            "Responses",
            "[]ShareFetchableTopicResponse",
            _field("TopicId", "uuid"),
            _field(
                "Partitions",
                "[]PartitionData",
                _field("PartitionIndex", "int32"),
                *_ERROR,
                _field("AcknowledgeErrorCode", "int16"),
                _field("AcknowledgeErrorMessage", "string", null=True),
                _field("CurrentLeader", "LeaderIdAndEpoch", *_OF_LEADER),
                _field("Records", "records", null=True),
                _field(
                    "AcquiredRecords",
                    "[]AcquiredRecords",
                    _field("FirstOffset", "int64"),
                    _field("LastOffset", "int64"),
                    _field("DeliveryCount", "int16"),
                ),
            ),
        ),
        _ENDPOINTS,
    ),
    "ShareAcknowledgeResponse": (
        _THROTTLED,
        *_ERROR,
        _field("AcquisitionLockTimeoutMs", "int32"),
        _field(
            "Responses",
            "[]ShareAcknowledgeTopicResponse",
            _field("TopicId", "uuid"),
            _field(
                "Partitions",
                "[]PartitionData",
                _field("PartitionIndex", "int32"),
                *_ERROR,
                _field("CurrentLeader", "LeaderIdAndEpoch", *_OF_LEADER),
            ),
        ),
        _ENDPOINTS,
    ),
    "DescribeShareGroupOffsetsResponse": (
        _THROTTLED,
        _field(
            "Groups",
            "[]DescribeShareGroupOffsetsResponseGroup",
            _field("GroupId", "string"),
            _field(
                "Topics",
                "[]DescribeShareGroupOffsetsResponseTopic",
                _field("TopicName", "string"),
                _field("TopicId", "uuid"),
                _field(
                    "Partitions",
                    "[]DescribeShareGroupOffsetsResponsePartition",
                    _field("PartitionIndex", "int32"),
                    _field("StartOffset", "int64"),
                    _field("LeaderEpoch", "int32"),
                    _field("Lag", "int64") | {"versions": "1+"},
                    *_ERROR,
                ),
            ),
            *_ERROR,
        ),
    ),
    "AlterShareGroupOffsetsResponse": (
        _THROTTLED,
        *_ERROR,
        _field(
            "Responses",
            "[]AlterShareGroupOffsetsResponseTopic",
            _field("TopicName", "string"),
            _field("TopicId", "uuid"),
            _field(
                "Partitions",
                "[]AlterShareGroupOffsetsResponsePartition",
                _field("PartitionIndex", "int32"),
                *_ERROR,
            ),
        ),
    ),
    "DeleteShareGroupOffsetsResponse": (
        _THROTTLED,
        *_ERROR,
        _field(
            "Responses",
            "[]DeleteShareGroupOffsetsResponseTopic",
            _field("TopicName", "string"),
            _field("TopicId", "uuid"),
            *_ERROR,
        ),
    ),
    "ConsumerGroupHeartbeatResponse": (
        _field("ThrottleTimeMs", "int32"),
        _field("ErrorCode", "int16"),
        _field("ErrorMessage", "string", null=True),
        _field("MemberId", "string", null=True),
        _field("MemberEpoch", "int32"),
        _field("HeartbeatIntervalMs", "int32"),
        _field("Assignment", "Assignment", _ASSIGNED, null=True),
    ),
    "ConsumerGroupDescribeResponse": (
        _field("ThrottleTimeMs", "int32"),
        _field(
            "Groups",
            "[]DescribedGroup",
            _field("ErrorCode", "int16"),
            _field("ErrorMessage", "string", null=True),
            _field("GroupId", "string"),
            _field("GroupState", "string"),
            _field("GroupEpoch", "int32"),
            _field("AssignmentEpoch", "int32"),
            _field("AssignorName", "string"),
            _field(
                "Members",
                "[]Member",
                _field("MemberId", "string"),
                _field("InstanceId", "string", null=True),
                _field("RackId", "string", null=True),
                _field("MemberEpoch", "int32"),
                _field("ClientId", "string"),
                _field("ClientHost", "string"),
                _field("SubscribedTopicNames", "[]string"),
                _field("SubscribedTopicRegex", "string", null=True),
                _field("Assignment", "Assignment", *_DESCRIBED_ASSIGNMENT),
                _field("TargetAssignment", "Assignment", *_DESCRIBED_ASSIGNMENT),
            ),
            _field("AuthorizedOperations", "int32"),
        ),
    ),
}


@cache
def _structure(name: str) -> Any:
    if name in _NOT_IN_KAFKA_PYTHON:
        description: dict[str, Any] = {
            "name": name,
            "type": "response",
            "versions": "0+",
            "fields": list(_NOT_IN_KAFKA_PYTHON[name]),
        }
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            description = load_json(name)
    structure: Any = StructField(description)
    structure._versions = (0, structure._versions[1])
    structure.set_data_class(type(name, (DataContainer,), {"_struct": structure}))
    return structure


def decode(entity_type: type[Entity], data: bytes) -> tuple[Any, int]:
    """What kafka-python makes of a body, and where it ends."""
    flexible, version = entity_type.__flexible__, int(entity_type.__version__)
    structure = _structure(entity_type.__name__)
    read = structure.compiled_decode_from(version, compact=flexible, tagged=flexible)
    found: tuple[Any, int] = read(memoryview(data), 0)
    return found


def after_header(frame: bytes, *, flexible: bool) -> bytes:
    """The body of a frame, as kafka-python finds it."""
    stream = io.BytesIO(frame)
    ResponseHeader.decode(stream, flexible=flexible)
    return stream.read()


def encode(entity: Entity) -> bytes:
    """The bytes of kafka-python for the same values, without tagged fields."""
    flexible, version = entity.__flexible__, int(entity.__version__)
    structure = _structure(type(entity).__name__)
    values = _values(entity, structure, version)
    written: bytes = structure.encode(values, version=version, compact=flexible, tagged=flexible)
    return written


def _pairs(entity: Any, structure: Any, version: int) -> list[tuple[Any, Any]]:
    """The fields of kio's dataclass beside those of kafka-python's structure."""
    ours = [field for field in dataclasses.fields(entity) if "tag" not in field.metadata]
    return list(zip(ours, structure.untagged_fields(version), strict=True))


def _values(entity: Any, structure: Any, version: int) -> dict[str, Any]:
    def value(given: Any, field: Any) -> Any:
        if isinstance(given, tuple):
            inner = field.array_of
            return [value(given_item, inner) for given_item in given]
        if dataclasses.is_dataclass(given):
            return _values(given, field, version)
        return _scalar(given)

    return {
        theirs.name: value(_null_time(getattr(entity, ours.name), ours), theirs)
        for ours, theirs in _pairs(entity, structure, version)
    }


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _null_time(value: Any, field: dataclasses.Field[Any]) -> Any:
    """A null time is None for kio, and -1 for kafka-python."""
    is_time = field.metadata.get("kafka_type") == "datetime_i64"
    return -1 if value is None and is_time else value


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        # kio's times far in the future are a few microseconds off.
        half = datetime.timedelta(microseconds=500)
        return (value - _EPOCH + half) // datetime.timedelta(milliseconds=1)
    return int(value) if isinstance(value, ErrorCode) else value


def differences(entity: Entity, decoded: Any) -> list[str]:
    """Which fields kio and kafka-python read with different values. An error code that kio does not
    know is read by the guard as UNKNOWN_SERVER_ERROR."""
    structure = _structure(type(entity).__name__)
    return list(_different(entity, decoded, structure, int(entity.__version__), ""))


def _different(entity: Any, decoded: Any, structure: Any, version: int, path: str) -> list[str]:
    found: list[str] = []
    for ours, theirs in _pairs(entity, structure, version):
        found += _compare(
            _null_time(getattr(entity, ours.name), ours),
            getattr(decoded, theirs.name),
            theirs,
            version,
            f"{path}.{ours.name}",
        )
    for ours, theirs in _tagged_pairs(entity, structure, version):
        value = getattr(entity, ours.name)
        # For an absent field kafka-python has None, and kio its default.
        if value != ours.default:
            other = getattr(decoded, theirs.name)
            found += _compare(value, other, theirs, version, f"{path}.{ours.name}")
    return found


def _tagged_pairs(entity: Any, structure: Any, version: int) -> list[tuple[Any, Any]]:
    """The tagged fields that are decoded, of kio's dataclass and of kafka-python's structure."""
    theirs = {field.tag: field for field in structure.fields.values() if field.tag is not None}
    return [
        (field, theirs[field.metadata["tag"]])
        for field in dataclasses.fields(entity)
        if "tag" in field.metadata and field.name in USED_TAGGED_FIELDS
    ]


def _compare(mine: Any, other: Any, field: Any, version: int, path: str) -> list[str]:
    if isinstance(mine, tuple) and other is not None:
        elements = mine
        if len(elements) != len(other):
            return [f"{path}: {len(elements)} and {len(other)} elements"]
        return [
            difference
            for number, (one, two) in enumerate(zip(elements, other, strict=True))
            for difference in _compare(one, two, field.array_of, version, f"{path}[{number}]")
        ]
    if dataclasses.is_dataclass(mine) and other is not None:
        return _different(mine, other, field, version, path)
    if isinstance(mine, ErrorCode) and other not in _ERRORS:
        other = _UNKNOWN_ERROR
    if isinstance(other, memoryview):
        other = other.tobytes()
    value = _scalar(mine)
    if type(value) is type(other) and value == other:
        return []
    if value is None and other is None:
        return []
    return [f"{path}: {value!r} and {other!r}"]


def check(entity: Entity, walked: Walk) -> None:
    """Raise unless kafka-python reads what was accepted in the same way.

    Two classes of differences are intended. Tagged fields that are not used are passed by their
    declared size and not read, while kafka-python reads those that it knows and may reject their
    content; and bytes after the message are not read by either.
    """
    decoded, end = decode(type(entity), walked.body)
    if end != len(walked.body):
        raise AssertionError(f"kafka-python read {end} bytes of {len(walked.body)}")
    if found := differences(entity, decoded):
        raise AssertionError("; ".join(found[:5]))
    if any(replacement != _UNKNOWN_ERROR_BYTES for _, _, replacement in walked.edits):
        return
    decoded, _ = decode(type(entity), walked.frame[walked.start :])
    if found := differences(entity, decoded):
        raise AssertionError("; ".join(found[:5]))
