"""ApiVersions, SaslHandshake and SaslAuthenticate, which open a connection."""

from __future__ import annotations

import struct
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from asyncrevoke.client.protocol.dialects.dialect import (
    Dialect,
    compact_string,
    make,
    schema,
    throttle_time,
    throttle_time_of,
    with_shortcut,
)
from asyncrevoke.client.protocol.guard import MOST_APIS, HostileFrame, varint
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
# The tag of the finalized features, and of each the highest and lowest level and its count of
# tagged fields.
_FINALIZED_FEATURES: Final = 2
_FEATURE_LEVELS: Final = struct.Struct(">hhB")
_MOST_FEATURES: Final = 1000
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
        named = compact_string(message.software_name) + compact_string(message.software_version)
        if version < 5:
            return named + _NO_TAGS
        expected = compact_string(message.cluster_id) + _NODE_ID.pack(message.node_id)
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


def _versions(entity: ApiVersions0 | ApiVersions3) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error=entity.error_code,
        ranges=_ranges(
            (api_key.api_key, api_key.min_version, api_key.max_version)
            for api_key in entity.api_keys
        ),
        throttle_time=throttle_time_of(entity),
        features=_features(
            (feature.name, feature.max_version_level)
            for feature in getattr(entity, "finalized_features", ())
        ),
    )


def _features(finalized: Iterable[tuple[str, int]]) -> dict[str, int]:
    return dict(islice(finalized, _MOST_FEATURES))


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
    throttled, features = 0.0, dict[str, int]()
    if version >= 1:
        throttled = throttle_time(_MILLISECONDS.unpack_from(frame, end)[0])
        end += _MILLISECONDS.size
    if version >= 3:
        if any(tags for *_, tags in found):
            return None
        features, end = _tagged(frame, end)
    if end != len(frame):
        return None
    ranges = _ranges((key, lowest, highest) for key, lowest, highest, *_ in found)
    return ApiVersionsResponse(
        error=error, ranges=ranges, throttle_time=throttled, features=features
    )


def _tagged(frame: bytes | memoryview, position: int) -> tuple[dict[str, int], int]:
    """The finalized features among the tagged fields (KIP-584), and the position after all."""
    features: dict[str, int] = {}
    count, position = varint(frame, position)
    last = -1
    for _ in range(count):
        tag, position = varint(frame, position)
        size, position = varint(frame, position)
        if tag <= last:
            raise HostileFrame(f"tagged field {tag} follows tagged field {last}")
        last = tag
        if tag == _FINALIZED_FEATURES:
            features = _finalized(frame[position : position + size])
        position += size
    return features, position


def _finalized(field: bytes | memoryview) -> dict[str, int]:
    """The highest finalized level of each feature, without kio."""
    count, position = varint(field, 0)
    if not 0 < count <= _MOST_FEATURES + 1:
        raise HostileFrame(f"{count - 1} finalized features")
    features: dict[str, int] = {}
    for _ in range(count - 1):
        size, position = varint(field, position)
        end = position + size - 1
        name = bytes(field[position:end]).decode()
        level, _lowest, tags = _FEATURE_LEVELS.unpack_from(field, end)
        if tags:
            raise HostileFrame("a feature with tagged fields")
        features[name] = level
        position = end + _FEATURE_LEVELS.size
    return features


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
