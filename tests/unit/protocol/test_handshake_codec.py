"""ApiVersions and SASL, with which a connection begins."""

from __future__ import annotations

import random
import struct

import pytest
from msgspec.structs import replace
from wire.frames import response_frames as frames

from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.codec import MalformedResponse
from asyncrevoke.client.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, ErrorCode

SOFTWARE = ApiVersionsRequest(software_name="asyncrevoke", software_version="1.2")
VERSIONS = codec.versions(ApiVersionsRequest)
OPENING = [(kind, version) for kind in codec.OPENING_REQUESTS for version in codec.versions(kind)]


def decoded(version: int, body: bytes) -> ApiVersionsResponse:
    response = codec.decode_response(ApiVersionsRequest, version, bytes(4) + body).message
    assert isinstance(response, ApiVersionsResponse)
    return response


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_request_is_written_as_kio_writes_it(version: int) -> None:
    dialect = codec._dialect(ApiVersionsRequest, version)
    body = codec.encode_request(SOFTWARE, version)
    assert body == codec._build(dialect, SOFTWARE, version)
    assert body == (b"\x0casyncrevoke\x041.2\0" if version == 3 else b"")


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "written"),
    [("abc", 258, b"\x04abc\0\0\1\2"), (None, -1, b"\0\xff\xff\xff\xff")],
)
def test_version_5_has_the_cluster_and_the_broker_that_are_expected(
    cluster_id: str | None, node_id: int, written: bytes
) -> None:
    # As in ApiVersionsRequest.json of Apache Kafka 4.4: after the software, a nullable string and
    # an int32. kio 0.6.5 does not have it.
    assert VERSIONS[0] == 5
    request = replace(SOFTWARE, cluster_id=cluster_id, node_id=node_id)
    assert codec.encode_request(request, 5) == b"\x0casyncrevoke\x041.2" + written + b"\0"
    assert codec.encode_header(ApiVersionsRequest, 5, 7, "c") == b"\0\x12\0\5\0\0\0\7\0\1c\0"
    with pytest.raises(ValueError, match="is not a request of version 5"):
        codec.encode_request(replace(request, node_id=2**31), 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_are_read_without_kio_as_kio_reads_them(version: int) -> None:
    dialect = codec._dialect(ApiVersionsRequest, version)
    rng = random.Random(version)
    by_shortcut = 0
    for _ in range(300):
        frame = frames.frame(ApiVersionsRequest, version, rng)
        fast = codec.decode_fast_path(ApiVersionsRequest, version, frame)
        whole = codec._read(dialect, version, frame, None, in_pieces=False)
        assert fast in (None, whole)
        by_shortcut += fast is not None
    assert by_shortcut > 250


def test_a_range_whose_lowest_version_is_above_the_highest_is_not_offered() -> None:
    body = struct.pack(">hi6h", 0, 2, 76, 1, 0, 3, 0, 13)
    assert decoded(0, body).ranges == {3: (0, 13)}
    tagged = struct.pack(">hb3hb3hbib", 0, 3, 76, 1, 0, 0, 3, 0, 13, 0, 0, 0)
    assert decoded(3, tagged).ranges == {3: (0, 13)}


def test_features_of_the_cluster_are_passed_over() -> None:
    body = struct.pack(">hb3hbi", 0, 2, 3, 0, 13, 0, 250) + b"\2\1\x03abc\x07\x01x"
    response = decoded(3, body)
    assert (response.ranges, response.throttle_time) == ({3: (0, 13)}, 0.25)
    with pytest.raises(MalformedResponse):
        decoded(3, body.replace(b"\x07\x01x", b"\x01\x01x"))


@pytest.mark.parametrize("version", [0, 3])
def test_more_requests_than_any_broker_knows_are_refused_by_their_count(version: int) -> None:
    entry = bytes(6) if version == 0 else bytes(7)
    count = struct.pack(">i", 1001) if version == 0 else b"\xea\x07"
    with pytest.raises(MalformedResponse, match="more than 1000 structures ApiVersion"):
        decoded(version, bytes(2) + count + 1001 * entry + bytes(5))


@pytest.mark.parametrize(("kind", "version"), OPENING)
def test_damaged_responses_are_read_or_rejected(kind: type[messages.Request], version: int) -> None:
    rng = random.Random(version)
    dialect = codec._dialect(kind, version)
    for _ in range(300):
        frame = frames.frame(kind, version, rng)
        frame = frame[:4] + frames.damage(frame[4:], rng)
        try:
            found = codec.decode_response(kind, version, frame)
        except MalformedResponse:
            continue
        assert found == codec._read(dialect, version, frame, None, in_pieces=False)


@pytest.mark.parametrize("version", codec.versions(messages.SaslAuthenticateRequest))
def test_the_lifetime_of_a_session_is_read_in_seconds(version: int) -> None:
    text = b"\0\0\0\0\0\1x" if version < 2 else b"\0\2x"
    lifetime = struct.pack(">q", 90_500) if version else b""
    body = bytes(2) + text + lifetime + (b"\0" if version == 2 else b"")
    header = bytes(4) + (b"\0" if version == 2 else b"")
    response = codec.decode_response(messages.SaslAuthenticateRequest, version, header + body)
    assert response.message == messages.SaslAuthenticateResponse(
        error=ErrorCode.none,
        error_message="" if version < 2 else None,
        auth_bytes=b"x",
        session_lifetime=90.5 if version else 0.0,
    )
