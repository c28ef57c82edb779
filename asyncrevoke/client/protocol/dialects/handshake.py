"""ApiVersions, SaslHandshake and SaslAuthenticate, which open a connection."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from asyncrevoke.client.protocol.dialects.dialect import (
    Dialect,
    make,
    schema,
    throttle_time,
    throttle_time_of,
    with_shortcut,
)
from asyncrevoke.client.protocol.guard import MOST_APIS, HostileFrame, varint, varint_bytes
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersions0
    from kio.schema.api_versions.v3.response import ApiVersionsResponse as ApiVersions3
    from kio.schema.sasl_authenticate.v0.response import SaslAuthenticateResponse as Authenticate0
    from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse as Authenticate1
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse as Handshake1

_ERROR: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_MILLISECONDS: Final = struct.Struct(">i")
# API key, lowest and highest version, and in version 3 the count of tagged fields.
_RANGE: Final = struct.Struct(">hhh")
_TAGGED_RANGE: Final = struct.Struct(">hhhB")
_NO_TAGS: Final = b"\0"
_NODE_ID: Final = struct.Struct(">i")
# kio has no later version of ApiVersions.
_HIGHEST_OF_KIO: Final = 4


def api_versions(version: int) -> Dialect:
    """Version 0 has no throttle time. Version 3 names the client's software (KIP-511), and version
    5 the broker that is expected (KIP-1242). Its response is that of version 4."""
    q, r = schema("api_versions", min(version, _HIGHEST_OF_KIO))

    def build(message: ApiVersionsRequest) -> object:
        if version > _HIGHEST_OF_KIO:
            raise ValueError(f"{message} is not a request of version {version}")
        if version < 3:
            return q.ApiVersionsRequest()
        return q.ApiVersionsRequest(
            client_software_name=message.software_name,
            client_software_version=message.software_version,
        )

    def write(message: ApiVersionsRequest) -> bytes | None:
        if version < 3:
            return b""
        named = _compact(message.software_name) + _compact(message.software_version)
        if version < 5:
            return named + _NO_TAGS
        expected = _compact(message.cluster_id) + _NODE_ID.pack(message.node_id)
        return named + expected + _NO_TAGS

    def read(
        frame: bytes | memoryview, offset: int, _: ApiVersionsRequest | None
    ) -> ApiVersionsResponse | None:
        try:
            return _read_versions(frame, offset, version)
        except (struct.error, IndexError, ValueError, HostileFrame):
            return None  # kio's decoder rejects it with a reason, or knows more

    kio = make(q.ApiVersionsRequest, build, r.ApiVersionsResponse, _versions)
    return replace(with_shortcut(kio, write, read), version=version)


def _compact(text: str | None) -> bytes:
    """A compact nullable string."""
    if text is None:
        return varint_bytes(0)
    data = text.encode()
    return varint_bytes(len(data) + 1) + data


def _versions(entity: ApiVersions0 | ApiVersions3) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error=entity.error_code,
        ranges=_ranges(
            (api_key.api_key, api_key.min_version, api_key.max_version)
            for api_key in entity.api_keys
        ),
        throttle_time=throttle_time_of(entity),
    )


def _ranges(offered: Iterable[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
    """By API key. A proxy that knows other versions than its broker may offer an empty range."""
    return {key: (lowest, highest) for key, lowest, highest in offered if lowest <= highest}


def _read_versions(
    frame: bytes | memoryview, position: int, version: int
) -> ApiVersionsResponse | None:
    """The response, without kio; None for what only kio's decoder reads."""
    error = ErrorCode(_ERROR.unpack_from(frame, position)[0])
    position += _ERROR.size
    entry = _RANGE
    if version < 3:
        count: int = _COUNT.unpack_from(frame, position)[0]
        position += _COUNT.size
    else:
        count, position = varint(frame, position)
        count -= 1
        entry = _TAGGED_RANGE
    end = position + count * entry.size
    if not 0 <= count <= MOST_APIS or end > len(frame):
        return None
    found = list(entry.iter_unpack(frame[position:end]))
    throttled = 0.0
    if version >= 1:
        throttled = throttle_time(_MILLISECONDS.unpack_from(frame, end)[0])
        end += _MILLISECONDS.size
    if version >= 3:
        if any(tags for *_, tags in found):
            return None
        end = _after_tags(frame, end)
    if end != len(frame):
        return None
    ranges = _ranges((key, lowest, highest) for key, lowest, highest, *_ in found)
    return ApiVersionsResponse(error=error, ranges=ranges, throttle_time=throttled)


def _after_tags(frame: bytes | memoryview, position: int) -> int:
    """The position after tagged fields, which are features of the cluster (KIP-584)."""
    count, position = varint(frame, position)
    last = -1
    for _ in range(count):
        tag, position = varint(frame, position)
        size, position = varint(frame, position)
        if tag <= last:
            raise HostileFrame(f"tagged field {tag} follows tagged field {last}")
        last = tag
        position += size
    return position


def sasl_handshake(version: int) -> Dialect:
    """After version 1, the messages of SASL are sent in SaslAuthenticate requests (KIP-152)."""
    q, r = schema("sasl_handshake", version)

    def build(message: SaslHandshakeRequest) -> object:
        return q.SaslHandshakeRequest(mechanism=message.mechanism)

    return make(q.SaslHandshakeRequest, build, r.SaslHandshakeResponse, _mechanisms)


def _mechanisms(entity: Handshake1) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error=entity.error_code, mechanisms=entity.mechanisms)


def sasl_authenticate(version: int) -> Dialect:
    """Version 0 has no lifetime of a session (KIP-368)."""
    q, r = schema("sasl_authenticate", version)

    def build(message: SaslAuthenticateRequest) -> object:
        return q.SaslAuthenticateRequest(auth_bytes=message.auth_bytes)

    return make(q.SaslAuthenticateRequest, build, r.SaslAuthenticateResponse, _authenticated)


def _authenticated(entity: Authenticate0 | Authenticate1) -> SaslAuthenticateResponse:
    lifetime: timedelta = getattr(entity, "session_lifetime", timedelta(0))
    return SaslAuthenticateResponse(
        error=entity.error_code,
        error_message=entity.error_message,
        auth_bytes=entity.auth_bytes,
        session_lifetime=max(lifetime.total_seconds(), 0.0),
    )
