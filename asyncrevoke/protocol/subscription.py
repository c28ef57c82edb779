"""Subscriptions and assignments of the classic group protocol.

The bytes are those of Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment: a
version, then the fields. Later versions only append fields, so an unknown version is read as the
newest known one.
"""

# Each version of a message is a module of kio: only those in use are loaded.

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.guard import HostileFrame, read_entity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kio.static.protocol import Entity

    _E = TypeVar("_E", bound=Entity)
    _P = TypeVar("_P")

NEWEST_VERSION = 3
_VERSION = struct.Struct(">h")
_MANY = 2**31


class MalformedMemberData(Exception):  # noqa: N818 - it names what was read
    """A subscription or an assignment that cannot be decoded, mostly of another client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
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
    """Decode a subscription of any version. Raises ``MalformedMemberData``, also for more than
    ``max_topics`` topics or ``max_owned`` owned partitions."""
    schema = _schema(min(_version(data), NEWEST_VERSION))
    entity, _ = _decode(schema.ConsumerProtocolSubscription, data)
    return Subscription(
        topics=_at_most(max_topics, entity.topics),
        owned=_flat(getattr(entity, "owned_partitions", ()), max_owned),
        generation=getattr(entity, "generation_id", -1),
        rack=getattr(entity, "rack_id", None),
        user_data=entity.user_data,
    )


def encode_assignment(partitions: Iterable[TopicPartition], note: bytes = b"") -> bytes:
    """The partitions of one member, as the leader sends them with SyncGroup.

    ``note`` is appended after the structure, where newer versions add fields and readers therefore
    ignore it. It is not sent as user data, because brokers do not convert a group to KIP-848 whose
    assignments have user data.
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
