"""Encodes requests and decodes responses, in a version that the client and the broker support.

Each request has at least two versions, the preferred one first. They cover brokers from Apache
Kafka 2.4 on, and newer ones that drop old versions. A version without tagged fields is preferred
where it lacks nothing: it is smaller, and ``guard.py`` walks it faster.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.serial import entity_writer

from asyncrevoke.protocol import messages
from asyncrevoke.protocol.dialects import (
    cluster,
    consumer_group,
    epochs,
    fetching,
    group,
    list_offsets,
    offset_commit,
    offset_fetch,
)
from asyncrevoke.protocol.dialects.dialect import throttle_time_of
from asyncrevoke.protocol.dialects.entity import entity
from asyncrevoke.protocol.guard import read_response
from asyncrevoke.protocol.messages import Response
from asyncrevoke.protocol.pieces import read_in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kio.static.protocol import Entity

    from asyncrevoke.protocol.dialects.dialect import Dialect
    from asyncrevoke.protocol.messages import Request


class UnsupportedVersion(Exception):  # noqa: N818 - as the Kafka protocol calls it
    """The broker offers no version of a request that this client supports."""


class MalformedResponse(Exception):  # noqa: N818 - it names what was read
    """Bytes that are not a response to the request."""


class DecodedResponse(NamedTuple):
    """A response. ``unknown_errors`` are error codes of a newer Kafka; ``message`` has
    ``unknown_server_error`` in their place. ``throttle_time``: for so many seconds the broker reads
    nothing from the connection (KIP-219)."""

    message: Response
    unknown_errors: tuple[int, ...] = ()
    throttle_time: float = 0.0


@dataclass(frozen=True, slots=True)
class _Api:
    key: int
    # The dialect of a version.
    dialect: Callable[[int], Dialect]
    # The preferred one first.
    versions: tuple[int, ...]
    # The first version that identifies topics by id only.
    by_id_from: int = 2**15


_APIS: Final[Mapping[type[Request], _Api]] = {
    messages.FetchRequest: _Api(1, fetching.fetch, (16, 13, 11, 12), by_id_from=13),
    messages.ListOffsetsRequest: _Api(2, list_offsets.list_offsets, (5, 6)),
    messages.MetadataRequest: _Api(3, cluster.metadata, (13, 12, 8)),
    # Brokers reject a member that has an epoch (KIP-848) in versions before 9.
    messages.OffsetCommitRequest: _Api(8, offset_commit.offset_commit, (10, 9, 7), by_id_from=10),
    messages.OffsetFetchRequest: _Api(9, offset_fetch.offset_fetch, (10, 9, 7, 5), by_id_from=10),
    messages.FindCoordinatorRequest: _Api(10, cluster.find_coordinator, (2, 3)),
    messages.JoinGroupRequest: _Api(11, group.join_group, (9, 5)),
    messages.HeartbeatRequest: _Api(12, group.heartbeat, (3, 4)),
    messages.LeaveGroupRequest: _Api(13, group.leave_group, (5, 3)),
    messages.SyncGroupRequest: _Api(14, group.sync_group, (5, 3)),
    messages.OffsetsForLeaderEpochRequest: _Api(23, epochs.offsets_for_leader_epoch, (3, 4)),
    messages.ConsumerGroupHeartbeatRequest: _Api(
        68, consumer_group.consumer_group_heartbeat, (1, 0)
    ),
}
# Bytes. A larger response takes more than a few milliseconds to decode unless it has a fast path:
# it is decoded in a thread, element by element, so that other threads can run.
LARGE_RESPONSE: Final = 128 * 1024
REQUESTS: Final[tuple[type[Request], ...]] = tuple(_APIS)
_NOT_OFFERED: Final = (0, -1)
_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")


def api_key(message_type: type[Request]) -> int:
    """Kafka's number for this request."""
    return _api(message_type).key


def versions(message_type: type[Request]) -> tuple[int, ...]:
    """The versions that this client supports, the preferred one first."""
    return _api(message_type).versions


def choose_version(
    message_type: type[Request],
    broker_versions: Mapping[int, tuple[int, int]],
    *,
    by_id: bool = True,
) -> int:
    """The version to use with a broker that offers ``{api key: (lowest, highest)}``: the first one
    of ``api.versions``, which are in order of preference.

    ``by_id=False`` excludes versions that identify topics by id only. Raises
    ``UnsupportedVersion`` with a sentence.
    """
    api = _api(message_type)
    lowest, highest = broker_versions.get(api.key, _NOT_OFFERED)
    for version in api.versions:
        if lowest <= version <= highest and (by_id or version < api.by_id_from):
            return version
    name = message_type.__name__.removesuffix("Request")
    if api.key not in broker_versions:
        raise UnsupportedVersion(
            f"the broker does not offer {name}: Apache Kafka does, is this another server?"
        )
    spoken = " and ".join(str(version) for version in sorted(api.versions))
    fix = "upgrade the brokers" if highest < min(api.versions) else "upgrade asyncrevoke"
    raise UnsupportedVersion(
        f"the broker offers versions {lowest} to {highest} of {name}, this client supports"
        f" {spoken}: {fix}"
    )


def has_topic_ids(message: Request) -> bool:
    """Whether the request has the ids of its topics, so that it can be sent without names."""
    return getattr(message, "topic_ids", None) is not None


def encode_frame(
    message: Request,
    broker_versions: Mapping[int, tuple[int, int]],
    correlation: int,
    client_id: str,
) -> tuple[int, bytes]:
    """The version to use, and the frame with its size.

    Raises ``UnsupportedVersion``, and ``ValueError`` if the version cannot express the message.
    """
    message_type = type(message)
    version = choose_version(message_type, broker_versions, by_id=has_topic_ids(message))
    header = encode_header(message_type, version, correlation, client_id)
    body = encode_request(message, version)
    return version, _SIZE.pack(len(header) + len(body)) + header + body


def encode_header(
    message_type: type[Request], version: int, correlation: int, client_id: str
) -> bytes:
    """The header of the request."""
    header = _header(message_type, version, client_id)
    # In every version the correlation id follows the API key and the API version.
    return header[:4] + _CORRELATION_ID.pack(correlation) + header[8:]


@cache
def _header(message_type: type[Request], version: int, client_id: str) -> bytes:
    from kio.schema.request_header import v1, v2
    from kio.static.primitive import i16, i32

    dialect = _dialect(message_type, version)
    header_type = v2.RequestHeader if dialect.flexible else v1.RequestHeader
    return _write(
        header_type(
            request_api_key=i16(dialect.api_key),
            request_api_version=i16(version),
            correlation_id=i32(0),
            client_id=client_id,
        )
    )


def encode_request(message: Request, version: int) -> bytes:
    """The body of the request. Raises ``ValueError`` if the version cannot express it."""
    dialect = _dialect(type(message), version)
    if dialect.shortcut is not None:
        try:
            written = dialect.shortcut.write(message)
        except (struct.error, UnicodeEncodeError):
            written = None  # kio raises an error that names the field
        if written is not None:
            return written
    return _build(dialect, message, version)


def _build(dialect: Dialect, message: Request, version: int) -> bytes:
    from kio.serial.errors import SerialError

    name = type(message).__name__
    try:
        return _write(dialect.build(message))
    except (SerialError, struct.error, TypeError, UnicodeEncodeError) as error:
        raise ValueError(f"a {name} cannot be written in version {version}: {error}") from error


def correlation_id(frame: bytes | memoryview) -> int:
    """The correlation id of a response frame. Raises ``MalformedResponse``."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedResponse(f"a response of {len(frame)} bytes has no correlation id")
    number: int = _CORRELATION_ID.unpack_from(frame)[0]
    return number


def decode_response(
    message_type: type[Request],
    version: int,
    frame: bytes | memoryview,
    request: Request | None = None,
) -> DecodedResponse:
    """Decode a response frame, header included.

    Topic ids become the names that ``request`` has for them; topics that it does not name are left
    out. Raises ``MalformedResponse`` and nothing else.
    """
    usual = decode_fast_path(message_type, version, frame, request)
    if usual is not None:
        return usual
    dialect = _dialect(message_type, version)
    return _read(dialect, version, bytes(frame), request, in_pieces=len(frame) > LARGE_RESPONSE)


def decode_fast_path(
    message_type: type[Request],
    version: int,
    frame: bytes | memoryview,
    request: Request | None = None,
) -> DecodedResponse | None:
    """Decode a response that has a fast path, whatever its size.

    None if it has none, or is malformed.
    """
    shortcut = _dialect(message_type, version).shortcut
    if shortcut is None:
        return None
    message = shortcut.read(frame, _CORRELATION_ID.size, request)
    if message is None:
        return None
    throttled = message.throttle_time if isinstance(message, messages.FetchResponse) else 0.0
    return DecodedResponse(message, throttle_time=throttled)


def _read(
    dialect: Dialect, version: int, frame: bytes, request: Request | None, *, in_pieces: bool
) -> DecodedResponse:
    response_type = dialect.response_type
    read = read_in_pieces if in_pieces else read_response
    try:
        entity, walked = read(frame, response_type)
        return DecodedResponse(
            dialect.read(entity, request), tuple(walked.unknown_errors), throttle_time_of(entity)
        )
    except Exception as error:  # kio raises ValueError, TypeError, OverflowError beside its own
        raise MalformedResponse(
            f"{len(frame)} bytes are no {response_type.__name__} v{version}:"
            f" {type(error).__name__}: {error}"
        ) from error


@cache
def _dialect(message_type: type[Request], version: int) -> Dialect:
    return _api(message_type).dialect(version)


@cache
def _api(message_type: type[Request]) -> _Api:
    if not issubclass(message_type, messages.EntityRequest):
        return _APIS[message_type]
    entities = {int(types[0].__version__): types for types in message_type.entities}
    key = int(message_type.entities[0][0].__api_key__)
    return _Api(key, lambda version: entity(*entities[version]), tuple(entities))


def _write(entity: Entity) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()
