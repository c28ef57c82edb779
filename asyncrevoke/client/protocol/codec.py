"""Encodes requests and decodes responses, in a version that the client and the broker support.

``dialects/versions.py`` lists the versions.
"""

from __future__ import annotations

import io
import struct
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from kio.serial import entity_writer

from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol import messages, share_messages
from asyncrevoke.client.protocol.dialects import (
    cluster,
    fetching,
    group,
    handshake,
    offsets,
    share,
)
from asyncrevoke.client.protocol.dialects.dialect import Dialect, throttle_time_of
from asyncrevoke.client.protocol.dialects.entity import entity
from asyncrevoke.client.protocol.dialects.versions import (
    APIS,
    METADATA_WITH_TOPIC_IDS,
    Api,
    Version,
)
from asyncrevoke.client.protocol.guard import read_response
from asyncrevoke.client.protocol.pieces import read_in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kio.static.protocol import Entity

    from asyncrevoke.client.protocol.messages import EntityRequest, Request, Response


class UnsupportedVersion(Exception):  # noqa: N818 - as the Kafka protocol calls it
    """The broker offers no version of a request that this client supports."""


class MalformedResponse(Exception):  # noqa: N818 - it names what was read
    """Bytes that are not a response to the request."""


class DecodedResponse(Value, frozen=True):
    """A response. ``unknown_errors`` are error codes of a newer Kafka; ``message`` has
    ``unknown_server_error`` in their place. ``throttle_time``: for so many seconds the broker reads
    nothing from the connection (KIP-219)."""

    message: Response
    unknown_errors: tuple[int, ...] = ()
    throttle_time: float = 0.0


class _Spoken(Value, frozen=True):
    """How the versions of a request are encoded."""

    api: Api
    # The dialect of a version.
    dialect: Callable[[int], Dialect]


_DIALECTS: Final[Mapping[type[Request], Callable[[int], Dialect]]] = {
    messages.FetchRequest: fetching.fetch,
    messages.ListOffsetsRequest: offsets.list_offsets,
    messages.MetadataRequest: cluster.metadata,
    messages.OffsetCommitRequest: offsets.offset_commit,
    messages.OffsetFetchRequest: offsets.offset_fetch,
    messages.FindCoordinatorRequest: cluster.find_coordinator,
    messages.JoinGroupRequest: group.join_group,
    messages.HeartbeatRequest: group.heartbeat,
    messages.LeaveGroupRequest: group.leave_group,
    messages.SyncGroupRequest: group.sync_group,
    messages.DescribeGroupsRequest: group.describe_groups,
    messages.OffsetsForLeaderEpochRequest: offsets.offsets_for_leader_epoch,
    messages.ConsumerGroupHeartbeatRequest: group.consumer_group_heartbeat,
    share_messages.ShareGroupHeartbeatRequest: share.share_group_heartbeat,
    share_messages.ShareFetchRequest: share.share_fetch,
    share_messages.ShareAcknowledgeRequest: share.share_acknowledge,
}
_OPENING: Final[Mapping[type[Request], Callable[[int], Dialect]]] = {
    messages.ApiVersionsRequest: handshake.api_versions,
    messages.SaslHandshakeRequest: handshake.sasl_handshake,
    messages.SaslAuthenticateRequest: handshake.sasl_authenticate,
}
# Bytes. A larger response takes more than a few milliseconds to decode unless it has a fast path:
# it is decoded in a thread, element by element, so that other threads can run.
LARGE_RESPONSE: Final = 128 * 1024
REQUESTS: Final[tuple[type[Request], ...]] = tuple(_DIALECTS)
# Of opening a connection.
OPENING_REQUESTS: Final[tuple[type[Request], ...]] = tuple(_OPENING)
_NOT_OFFERED: Final = (0, -1)
# Of the messages that have a fast path.
_WITH_THROTTLE_TIME: Final = (messages.FetchResponse, messages.ApiVersionsResponse)
_SIZE: Final = struct.Struct(">i")
# API key, version, correlation id, length of the client id.
_HEADER: Final = struct.Struct(">hhih")
_LONGEST_CLIENT_ID: Final = 2**15 - 1
_CORRELATION_ID: Final = struct.Struct(">i")


def api_key(message_type: type[Request]) -> int:
    """Kafka's number for this request."""
    return _spoken(message_type).api.key


def versions(message_type: type[Request]) -> tuple[int, ...]:
    """The versions that this client supports, the preferred one first."""
    return tuple(version.number for version in _spoken(message_type).api.versions)


def choose_version(
    message_type: type[Request],
    broker_versions: Mapping[int, tuple[int, int]],
    *,
    by_id: bool = True,
    highest: int = messages.NEWEST,
) -> int:
    """The version to use with a broker that offers ``{api key: (lowest, highest)}``: the first one
    of :func:`versions`, which are in order of preference.

    ``by_id=False`` excludes versions that identify topics by id only, and ``highest`` later ones.
    Raises ``UnsupportedVersion`` with a sentence.
    """
    api = _spoken(message_type).api
    lowest, offered = broker_versions.get(api.key, _NOT_OFFERED)
    for version, _ in api.versions:
        if lowest <= version <= min(offered, highest) and (by_id or version < api.by_id_from):
            if api.needs_topic_ids:
                _check_topic_ids(message_type, broker_versions)
            return version
    raise UnsupportedVersion(_not_shared(message_type, broker_versions))


def _check_topic_ids(
    message_type: type[Request], broker_versions: Mapping[int, tuple[int, int]]
) -> None:
    """Raise ``UnsupportedVersion`` if no offered version of Metadata has topic ids: a proxy may
    limit it below the versions of other requests."""
    lowest, highest = broker_versions.get(APIS["Metadata"].key, (0, METADATA_WITH_TOPIC_IDS))
    if highest < METADATA_WITH_TOPIC_IDS:
        raise UnsupportedVersion(
            f"the broker offers Metadata {lowest} to {highest}, which has no topic ids, and"
            f" {request_name(message_type)} needs them: {_spoken(message_type).api.without}"
        )


def _not_shared(message_type: type[Request], broker_versions: Mapping[int, tuple[int, int]]) -> str:
    """Which versions the broker offers, which are needed, for what, and what does without."""
    name, api = request_name(message_type), _spoken(message_type).api
    numbers = sorted(version.number for version in api.versions)
    lowest, highest = broker_versions.get(api.key, _NOT_OFFERED)
    if highest < lowest:
        offered = f"the broker does not offer {name}"
    elif any(lowest <= number <= highest for number in numbers):
        return (
            f"the broker offers {name} {lowest} to {highest}, which need topic ids, and the id of a"
            f" topic is unknown: {api.without}"
        )
    else:
        offered = f"the broker offers {name} {lowest} to {highest}"
    needed = " or ".join(filter(None, (", ".join(map(str, numbers[:-1])), str(numbers[-1]))))
    return f"{offered}, and version {needed} is needed for {api.purpose}: {api.without}"


def request_name(message_type: type[Request]) -> str:
    """Kafka's name of this request."""
    return message_type.__name__.removesuffix("Request")


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
    highest: int = getattr(message, "highest_version", messages.NEWEST)
    version = choose_version(
        message_type, broker_versions, by_id=has_topic_ids(message), highest=highest
    )
    return version, encode_version(message, version, correlation, client_id)


def encode_version(message: Request, version: int, correlation: int, client_id: str) -> bytes:
    """The frame of a request in this version, with its size.

    Raises ``ValueError`` if the version cannot express the message.
    """
    header = encode_header(type(message), version, correlation, client_id)
    body = encode_request(message, version)
    return _SIZE.pack(len(header) + len(body)) + header + body


def encode_header(
    message_type: type[Request], version: int, correlation: int, client_id: str
) -> bytes:
    """The header of the request."""
    header = _header(message_type, version, client_id)
    # In every version the correlation id follows the API key and the API version.
    return header[:4] + _CORRELATION_ID.pack(correlation) + header[8:]


@cache
def _header(message_type: type[Request], version: int, client_id: str) -> bytes:
    dialect = _dialect(message_type, version)
    name = client_id.encode()
    if len(name) > _LONGEST_CLIENT_ID:
        raise ValueError(f"client_id has {len(name)} bytes, more than {_LONGEST_CLIENT_ID}")
    # Version 2 of the header ends with its tagged fields.
    tags = b"\0" if dialect.flexible else b""
    return _HEADER.pack(dialect.api_key, version, 0, len(name)) + name + tags


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
    throttled = message.throttle_time if isinstance(message, _WITH_THROTTLE_TIME) else 0.0
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
    return _spoken(message_type).dialect(version)


@cache
def _spoken(message_type: type[Request]) -> _Spoken:
    name = request_name(message_type)
    if not issubclass(message_type, messages.EntityRequest):
        dialect = _DIALECTS.get(message_type) or _OPENING[message_type]
        return _Spoken(APIS[name], dialect)
    entity_type = cast("type[EntityRequest[object]]", message_type)
    request_type, _ = entity_type.entities
    number = int(request_type.__version__)
    api = APIS.get(name, Api(int(request_type.__api_key__), "", (Version(number),), ""))
    return _Spoken(api, lambda version: _of_entities(entity_type, api, version))


def _of_entities(message_type: type[EntityRequest[object]], api: Api, version: int) -> Dialect:
    if version < api.by_id_from:
        return entity(message_type.entities, version)
    from asyncrevoke.client.protocol.dialects.produce import produce_by_id

    return produce_by_id(version)


def _write(entity: Entity) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()
