"""Subscriptions and assignments of the classic group protocol.

The bytes are those of Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment: a
version, then the fields. Later versions only append fields, so an unknown version is read as the
newest known one. A subscription may lack the last fields of its version: kafka-go 0.4.51 and
@platformatic/kafka 1.35.0 send version 1 without owned partitions.
"""

# Each version of a message is a module of kio: only those in use are loaded.

from __future__ import annotations

import io
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.guard import HostileFrame, read_entity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kio.static.protocol import Entity

    _E = TypeVar("_E", bound=Entity)
    _P = TypeVar("_P")

NEWEST_VERSION = 3
_INT16 = _VERSION = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MANY = 2**31


class MalformedMemberData(Exception):  # noqa: N818 - it names what was read
    """A subscription or an assignment that cannot be decoded, mostly of another client."""


class Subscription(Value, frozen=True, kw_only=True):
    """One member's subscription.

    ``owned`` (version 1, KIP-429) are the partitions that the member owns, ``generation`` (version
    2, KIP-792) the generation that assigned them, -1 if unknown. ``rack`` (version 3, KIP-881) is
    the member's rack. ``user_data`` belongs to the assignor.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """The subscription in ``version`` (0 to 3); topics and partitions sorted as in Java."""
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"there is no version {version} of a subscription: use 0 to 3")
    schema = _schema(version)
    fields: dict[str, object] = {
        "topics": tuple(sorted(subscription.topics)),
        "user_data": subscription.user_data,
    }
    if version >= 1:
        fields["owned_partitions"] = _grouped(subscription.owned, schema.TopicPartition)
    if version >= 2:
        fields["generation_id"] = subscription.generation
    if version >= 3:
        fields["rack_id"] = subscription.rack
    return _encode(schema.ConsumerProtocolSubscription(**fields), version)


def _schema(version: int) -> Any:  # noqa: ANN401 - its types differ from version to version
    """Kio's module of this version of a subscription."""
    return import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")


def _grouped(
    partitions: Iterable[TopicPartition], topic_partitions: Callable[..., _P]
) -> tuple[_P, ...]:
    """The partitions sorted and grouped by topic, as the type that one version has for a topic."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(
        topic_partitions(topic=topic, partitions=tuple(of_topic))
        for topic, of_topic in numbers.items()
    )


def decode_subscription(
    data: bytes, *, max_topics: int = _MANY, max_owned: int = _MANY
) -> Subscription:
    """The subscription of :func:`decode_with_unread_size`."""
    return decode_with_unread_size(data, max_topics=max_topics, max_owned=max_owned)[0]


def decode_with_unread_size(
    data: bytes, *, max_topics: int = _MANY, max_owned: int = _MANY
) -> tuple[Subscription, int]:
    """Decode a subscription of any version, and count the bytes at its end that are not valid.

    Of the fields after the user data, those from the first one on that is missing or not valid have
    their defaults: no owned partitions, generation -1, no rack. The leaders of sarama and franz-go
    do so too. Raises ``MalformedMemberData`` if topics or user data are not valid, for more than
    ``max_topics`` topics or ``max_owned`` owned partitions, and for partitions below 0.
    """
    from kio.schema.consumer_protocol_subscription.v0 import data as v0

    version = _version(data)
    entity, at = _decode(v0.ConsumerProtocolSubscription, data)
    topics = _at_most(max_topics, entity.topics)
    owned: tuple[TopicPartition, ...] = ()
    generation, rack, unread = -1, None, 0
    try:
        if version >= 1 and at < len(data):
            owned, at = read_partitions(data, at, max_owned)
        if version >= 2 and at < len(data):
            generation, at = _INT32.unpack_from(data, at)[0], at + _INT32.size
        if version >= 3 and at < len(data):
            rack, at = _read_string(data, at)
    except (struct.error, ValueError):
        unread = len(data) - at
    return (
        Subscription(
            topics=topics, owned=owned, generation=generation, rack=rack, user_data=entity.user_data
        ),
        unread,
    )


def read_partitions(data: bytes, at: int, most: int) -> tuple[tuple[TopicPartition, ...], int]:
    """The partitions of each topic, in an array at ``at``, and where the array ends.

    Raises struct.error or ValueError if it is not valid, and ``MalformedMemberData`` for more than
    ``most`` partitions or one below 0.
    """
    owned: list[TopicPartition] = []
    topics, at = _read_count(data, at)
    for _ in range(topics):
        topic, at = _read_string(data, at)
        if topic is None:
            raise ValueError("a topic without a name")
        count, at = _read_count(data, at)
        if len(owned) + count > most:
            raise MalformedMemberData(f"it names more than {most} partitions")
        numbers: tuple[int, ...] = struct.unpack_from(f">{count}i", data, at)
        if count and min(numbers) < 0:
            raise MalformedMemberData("it names a partition below 0")
        owned += (TopicPartition(topic, number) for number in numbers)
        at += _INT32.size * count
    return tuple(owned), at


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """The number of elements of an array, 0 for null."""
    count: int = _INT32.unpack_from(data, at)[0]
    if not -1 <= count <= len(data) // _INT32.size:
        raise ValueError(f"{count} elements in {len(data)} bytes")
    return max(count, 0), at + _INT32.size


def _read_string(data: bytes, at: int) -> tuple[str | None, int]:
    length: int = _INT16.unpack_from(data, at)[0]
    at += _INT16.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a string of {length} bytes")
    return data[at : at + length].decode(), at + length


def encode_assignment(partitions: Iterable[TopicPartition], note: bytes = b"") -> bytes:
    """The partitions of one member, as the leader sends them with SyncGroup.

    ``note`` is appended after the structure, and only for a member that is known to read it: some
    clients decode strictly. It is not sent as user data, because brokers do not convert a group to
    KIP-848 whose assignments have user data.
    """
    from kio.schema.consumer_protocol_assignment.v3 import data as v3

    assigned = _grouped(partitions, v3.TopicPartition)
    entity = v3.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    return _encode(entity, NEWEST_VERSION) + note


def decode_assignment(
    data: bytes, *, max_assigned: int = _MANY
) -> tuple[tuple[TopicPartition, ...], bytes]:
    """The partitions in their order, and the note after them.

    No bytes are an empty assignment: brokers send none to a member that the leader left out. Raises
    ``MalformedMemberData``, also for more than ``max_assigned`` partitions.
    """
    if not data:
        return (), b""
    from kio.schema.consumer_protocol_assignment.v3 import data as v3

    _version(data)  # all versions so far have the same fields
    assignment, end = _decode(v3.ConsumerProtocolAssignment, data)
    return _flat(assignment.assigned_partitions, max_assigned), data[end:]


class _TopicPartitions(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def _at_most(limit: int, topics: Sequence[str] | None) -> tuple[str, ...]:
    if len(topics or ()) > limit:
        raise MalformedMemberData(f"it names more than {limit} topics")
    return tuple(topics or ())


def _flat(
    topics: Sequence[_TopicPartitions] | None, limit: int = _MANY
) -> tuple[TopicPartition, ...]:
    if sum(len(entry.partitions or ()) for entry in topics or ()) > limit:
        raise MalformedMemberData(f"it names more than {limit} partitions")
    partitions = tuple(
        TopicPartition(entry.topic, number)
        for entry in topics or ()
        for number in entry.partitions or ()
    )
    if any(number < 0 for _, number in partitions):
        raise MalformedMemberData("it names a partition below 0")
    return partitions


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMemberData(f"{len(data)} bytes are too short for a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedMemberData(f"version {version} is below 0")
    return version


def _encode(entity: Entity, version: int) -> bytes:
    from kio.serial import entity_writer

    with io.BytesIO() as buffer:
        buffer.write(_VERSION.pack(version))
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()


def _decode(entity_type: type[_E], data: bytes) -> tuple[_E, int]:
    """The structure after the version, and where it ends."""
    try:
        entity, walked = read_entity(data, _VERSION.size, entity_type)
        return entity, _VERSION.size + len(walked.body)
    except HostileFrame as error:
        name = entity_type.__name__
        raise MalformedMemberData(
            f"{len(data)} bytes are no {name} of version {entity_type.__version__}: {error}"
        ) from error
