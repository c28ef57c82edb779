"""Messages to bytes and back."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import re
import struct
import uuid
from typing import TYPE_CHECKING

import msgspec
import pytest
from kio.schema.heartbeat.v3.response import HeartbeatResponse as Heartbeat3
from kio.schema.heartbeat.v4.response import HeartbeatResponse as Heartbeat4
from kio.schema.leave_group.v5 import response as leave5
from kio.schema.metadata.v12 import response as metadata12
from kio.schema.offset_commit.v10 import response as commit10
from kio.schema.request_header import v1, v2
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32
from unit.protocol.sample_requests import EVERY_VERSION, NO_THROTTLE, REQUESTS, TOPIC_IDS, TP
from wire.frames import response_frames as frames

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, messages, share_messages
from asyncrevoke.client.protocol.codec import MalformedResponse, UnsupportedVersion
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import Request


def offered(kind: type[Request], lowest: int, highest: int) -> dict[int, tuple[int, int]]:
    return {codec.api_key(kind): (lowest, highest)}


@pytest.mark.parametrize("kind", codec.REQUESTS)
def test_the_preferred_version_is_used_where_it_is_offered(kind: type[Request]) -> None:
    preferred, *others = codec.versions(kind)
    assert codec.choose_version(kind, offered(kind, 0, 99)) == preferred
    for version in (preferred, *others):
        assert codec.choose_version(kind, offered(kind, version, version)) == version


@pytest.mark.parametrize("version", codec.versions(messages.MetadataRequest))
def test_metadata_are_requested_by_id_where_the_version_has_ids(version: int) -> None:
    request = messages.MetadataRequest(topics=(), topic_ids=(b"\1" * 16, b"\2" * 16))
    if version < 12:
        with pytest.raises(ValueError, match=f"is not a request of version {version}"):
            codec.encode_request(request, version)
        return
    body = codec.encode_request(request, version)
    assert body == b"\3" + b"\1" * 16 + b"\0\0" + b"\2" * 16 + b"\0\0" + bytes(3)


@pytest.mark.parametrize("topics", [None, (), ("orders",), ("a", "ü" * 3, "x" * 249), ("",) * 200])
@pytest.mark.parametrize("version", codec.versions(messages.MetadataRequest))
def test_a_metadata_request_is_written_as_kio_writes_it(
    version: int, topics: tuple[str, ...] | None
) -> None:
    message = messages.MetadataRequest(topics=topics)
    dialect = codec._dialect(messages.MetadataRequest, version)
    assert codec.encode_request(message, version) == codec._build(dialect, message, version)


@pytest.mark.parametrize("milliseconds", [0, 1, 20_500])
@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_the_throttle_time_of_every_response_is_read(
    kind: type[Request], version: int, milliseconds: int
) -> None:
    dialect = codec._dialect(kind, version)
    entity = frames.sample(dialect.response_type, random.Random(3))
    throttled = dataclasses.replace(
        entity, throttle_time=datetime.timedelta(milliseconds=milliseconds)
    )
    frame = frames.header(flexible=dialect.flexible) + frames.body(throttled)
    assert codec.decode_response(kind, version, frame).throttle_time == milliseconds / 1000


@pytest.mark.parametrize("version", codec.versions(messages.FetchRequest))
def test_the_throttle_time_of_a_fetch_without_partitions_is_read(version: int) -> None:
    tags, topics = (b"", b"\0\0\0\0") if version < 12 else (b"\0", b"\1")
    empty = b"\0\0\0\7" + tags + struct.pack(">ihi", 20_500, 0, 0) + topics + tags
    decoded = codec.decode_response(messages.FetchRequest, version, empty)
    assert decoded.throttle_time == 20.5
    assert decoded.message == messages.FetchResponse(error=ErrorCode.none, throttle_time=20.5)


@pytest.mark.parametrize(("milliseconds", "seconds"), [(-1, 0.0), (2**31 - 1, 3600.0)])
def test_an_impossible_throttle_time_is_not_believed(milliseconds: int, seconds: float) -> None:
    frame = struct.pack(">iih", 7, milliseconds, 0)
    assert codec.decode_response(messages.HeartbeatRequest, 3, frame).throttle_time == seconds


# What Apache Kafka 2.4 and 4.3 offer.
KAFKA_2_4 = {1: 11, 2: 5, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 23: 3}
KAFKA_4_3 = {
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    23: (2, 4),
    68: (0, 1),
    76: (1, 1),
    78: (1, 2),
    79: (1, 2),
}
# What no server of before Apache Kafka 3.7 offers, and what helps.
NOT_OFFERED: dict[type[Request], str] = {
    messages.ConsumerGroupHeartbeatRequest: 'use group_protocol="auto" or "classic"',
    share_messages.ShareGroupHeartbeatRequest: "share groups need Apache Kafka 4.2 or later",
    share_messages.ShareFetchRequest: "share groups need Apache Kafka 4.2 or later",
    share_messages.ShareAcknowledgeRequest: "share groups need Apache Kafka 4.2 or later",
}


@pytest.mark.parametrize("kind", codec.REQUESTS)
def test_kafka_2_4_and_4_3_are_served(kind: type[Request]) -> None:
    old = {key: (0, highest) for key, highest in KAFKA_2_4.items()}
    if kind in NOT_OFFERED:
        name = codec.request_name(kind)
        with pytest.raises(UnsupportedVersion, match=f"does not offer {name},"):
            codec.choose_version(kind, old)
    else:
        assert codec.choose_version(kind, old) in codec.versions(kind)
    assert codec.choose_version(kind, KAFKA_4_3) == codec.versions(kind)[0]


NOTHING = "nothing can be read without it"
REDPANDA = {
    1: (4, 11),
    2: (0, 4),
    3: (0, 7),
    8: (0, 8),
    9: (0, 7),
    10: (0, 3),
    11: (0, 6),
    12: (0, 4),
    13: (0, 4),
    14: (0, 4),
    15: (0, 4),
    23: (0, 4),
}


@pytest.mark.parametrize("kind", codec.REQUESTS)
def test_redpanda_is_served(kind: type[Request]) -> None:
    if (helps := NOT_OFFERED.get(kind)) is not None:
        with pytest.raises(UnsupportedVersion, match=helps):
            codec.choose_version(kind, REDPANDA)
    else:
        assert codec.choose_version(kind, REDPANDA) in codec.versions(kind)


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (
            {1: (0, 3)},
            "the broker offers Fetch 0 to 3, and version 11, 12, 13 or 16 is needed for records: "
            + NOTHING,
        ),
        ({1: (40, 50)}, "the broker offers Fetch 40 to 50, and version 11, 12, 13 or 16 is needed"),
        (
            {1: (13, 18)},
            "the broker offers Fetch 13 to 18, which need topic ids, and the id of a topic is",
        ),
        ({}, "the broker does not offer Fetch, and version 11, 12, 13 or 16 is needed for records"),
        # As Kroxylicious 0.12 says that it offers none.
        ({1: (1, 0)}, "the broker does not offer Fetch, and version"),
    ],
)
def test_the_error_names_the_range_of_the_broker_and_what_does_without(
    versions: dict[int, tuple[int, int]], sentence: str
) -> None:
    with pytest.raises(UnsupportedVersion, match="^" + re.escape(sentence)):
        codec.choose_version(messages.FetchRequest, versions, by_id=False)


def test_a_member_needs_the_topic_ids_of_metadata_for_kip_848() -> None:
    kind = messages.ConsumerGroupHeartbeatRequest
    # As Azure Event Hubs offers Metadata, and proxies that limit it.
    with pytest.raises(
        UnsupportedVersion,
        match=r"^the broker offers Metadata 0 to 9, which has no topic ids, and"
        r' ConsumerGroupHeartbeat needs them: use group_protocol="auto" or "classic"$',
    ):
        codec.choose_version(kind, {3: (0, 9), 68: (0, 1)})
    assert codec.choose_version(kind, {3: (0, 12), 68: (0, 1)}) == 1


def test_a_server_without_groups_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match=r"does not offer JoinGroup.* without group_id"):
        codec.choose_version(messages.JoinGroupRequest, offered(messages.FetchRequest, 0, 12))


@pytest.mark.parametrize("message", REQUESTS, ids=lambda message: type(message).__name__)
def test_a_request_reads_back_by_its_schema(message: Request) -> None:
    for version in codec.versions(type(message)):
        dialect = codec._dialect(type(message), version)
        entity = dialect.build(message)
        data = codec.encode_request(message, version)
        assert entity_reader(type(entity))(data, 0) == (entity, len(data))
        header = codec.encode_header(type(message), version, 5, "client")
        plain = struct.pack(">hhih", codec.api_key(type(message)), version, 5, 6) + b"client"
        assert header == plain + (b"\0" if dialect.flexible else b"")


def test_partitions_of_a_fetch_keep_their_order() -> None:
    entity = codec._dialect(messages.FetchRequest, 11).build(REQUESTS[-2])
    assert [topic.topic for topic in entity.topics] == ["t", "u", "t"]  # type: ignore[attr-defined]
    for version in (13, 16):
        entity = codec._dialect(messages.FetchRequest, version).build(REQUESTS[-2])
        ids = [topic.topic_id.bytes for topic in entity.topics]  # type: ignore[attr-defined]
        assert ids == [TOPIC_IDS["t"], TOPIC_IDS["u"], TOPIC_IDS["t"]]


def test_partitions_of_a_commit_are_grouped_by_topic() -> None:
    entity = codec._dialect(messages.OffsetCommitRequest, 7).build(REQUESTS[8])
    grouped = [(t.name, [p.partition_index for p in t.partitions]) for t in entity.topics]  # type: ignore[attr-defined]
    assert grouped == [("t", [3, 4]), ("u", [0])]


def test_topics_go_by_their_ids_only_if_all_of_these_are_known() -> None:
    commit, fetch, records = REQUESTS[8], REQUESTS[9], REQUESTS[-2]
    for message, by_id, by_name in ((commit, 10, 9), (fetch, 10, 9), (records, 16, 11)):
        kind = type(message)
        assert codec.has_topic_ids(message)
        unknown = msgspec.structs.replace(message, topic_ids=None)
        assert not codec.has_topic_ids(unknown)
        assert codec.choose_version(kind, KAFKA_4_3, by_id=True) == by_id
        assert codec.choose_version(kind, KAFKA_4_3, by_id=False) == by_name
        with pytest.raises(ValueError, match="the id of topic 't' is unknown"):
            codec.encode_request(unknown, by_id)


def test_the_response_to_a_commit_by_ids_has_the_names_of_the_request() -> None:
    request = REQUESTS[8]
    assert isinstance(request, messages.OffsetCommitRequest)
    topics = tuple(
        commit10.OffsetCommitResponseTopic(
            topic_id=topic_id,
            partitions=(
                commit10.OffsetCommitResponsePartition(partition_index=i32(3), error_code=error),
            ),
        )
        for topic_id, error in (
            (uuid.UUID(bytes=TOPIC_IDS["t"]), ErrorCode.none),
            (uuid.UUID(bytes=TOPIC_IDS["u"]), ErrorCode.unknown_topic_id),
            (uuid.UUID(int=99), ErrorCode.none),
        )
    )
    response = commit10.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=topics)
    with io.BytesIO() as buffer:
        entity_writer(type(response))(buffer, response)
        data = struct.pack(">ib", 1, 0) + buffer.getvalue()
    decoded = codec.decode_response(type(request), 10, data, request).message
    assert decoded == messages.OffsetCommitResponse(
        errors=(
            (TopicPartition("t", 3), ErrorCode.none),
            (TopicPartition("u", 3), ErrorCode.unknown_topic_id),
        )
    )
    unasked = codec.decode_response(type(request), 10, data).message
    assert unasked == messages.OffsetCommitResponse(errors=())


@pytest.mark.parametrize("version", [0, 1])
def test_what_has_not_changed_is_left_out_of_a_heartbeat(version: int) -> None:
    message = messages.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=7, group_instance_id=None
    )
    dialect = codec._dialect(type(message), version)
    entity = dialect.build(message)
    assert entity.rebalance_timeout == datetime.timedelta(milliseconds=-1)  # type: ignore[attr-defined]
    assert entity.subscribed_topic_names is None  # type: ignore[attr-defined]
    assert entity.topic_partitions is None  # type: ignore[attr-defined]


def test_a_regex_needs_a_broker_that_resolves_it() -> None:
    message = messages.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, group_instance_id=None, regex="t.*"
    )
    assert b"t.*" in codec.encode_request(message, 1)
    with pytest.raises(ValueError, match=r"Heartbeat 0, .*before Apache Kafka 4\.0 match no"):
        codec.encode_request(message, 0)


def test_a_reason_is_cut_to_what_brokers_accept() -> None:
    entity = codec._dialect(messages.JoinGroupRequest, 9).build(REQUESTS[3])
    assert len(entity.reason) == 255  # type: ignore[attr-defined]


def test_a_request_that_does_not_fit_is_rejected_with_a_sentence() -> None:
    entry = messages.CommitEntry(partition=TP, offset=1, metadata="x" * 40000)
    message = messages.OffsetCommitRequest(
        group_id="g", generation=1, member_id="m", group_instance_id=None, entries=(entry,)
    )
    with pytest.raises(ValueError, match="OffsetCommitRequest cannot be written in version 7"):
        codec.encode_request(message, 7)
    with pytest.raises(ValueError, match="FetchRequest cannot be written"):
        codec.encode_request(
            messages.FetchRequest(
                partitions=(messages.FetchPartition(partition=TP, offset=2**64, max_bytes=1),),
                max_wait=0.5,
                min_bytes=1,
                max_bytes=1,
            ),
            11,
        )


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_valid_response_is_read(kind: type[Request], version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        data = frames.frame(kind, version, rng)
        decoded = codec.decode_response(kind, version, data)
        assert type(decoded.message).__name__ == kind.__name__.replace("Request", "Response")
        assert decoded.unknown_errors == ()
        assert codec.correlation_id(data) == frames.CORRELATION_ID


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_response_that_is_cut_off_is_rejected(kind: type[Request], version: int) -> None:
    data = frames.frame(kind, version, random.Random(1))
    for length in range(len(data)):
        with pytest.raises(MalformedResponse):
            codec.decode_response(kind, version, data[:length])


def test_an_unknown_error_code_is_kept_for_the_log() -> None:
    for version in (3, 4):
        known = Heartbeat3 if version == 3 else Heartbeat4
        data = frames.header(flexible=version == 4) + frames.body(
            known(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)
        )
        at = len(data) - 2 - (version == 4)
        data = data[:at] + struct.pack(">h", -300) + data[at + 2 :]
        decoded = codec.decode_response(messages.HeartbeatRequest, version, data)
        assert decoded.message == messages.HeartbeatResponse(error=ErrorCode.unknown_server_error)
        assert decoded.unknown_errors == (-300,)


def test_tagged_fields_of_a_newer_broker_are_passed_over() -> None:
    unknown = b"\x02\x07\x01z\x63\x03abc"  # tag 7 of one byte, tag 99 of three
    data = struct.pack(">i", 1) + unknown + struct.pack(">ih", 0, 25) + unknown
    decoded = codec.decode_response(messages.HeartbeatRequest, 4, data)
    assert decoded.message == messages.HeartbeatResponse(error=ErrorCode.unknown_member_id)


@pytest.mark.parametrize(
    ("kind", "version", "data"),
    [
        (messages.MetadataRequest, 12, bytes(9) + b"\xff\xff\xff\xff\x0f"),
        (messages.MetadataRequest, 8, bytes(8) + b"\x7f\xff\xff\xff"),
        (messages.FetchRequest, 11, bytes(14) + b"\x7f\xff\xff\xff"),
        (messages.HeartbeatRequest, 4, bytes(4) + b"\xff\xff\xff\xff\x0f"),
        (messages.HeartbeatRequest, 4, bytes(4) + b"\xff\xff\xff\xff\xff\xff\x01" + bytes(20)),
    ],
    ids=["compact array", "array", "array of a fetch", "tags of the header", "endless number"],
)
def test_a_count_greater_than_the_bytes_left_is_rejected_before_decoding(
    kind: type[Request], version: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> object:
        raise AssertionError("kio was asked to decode a hostile count")

    def reader(_: object) -> object:
        return never

    monkeypatch.setattr("kio.serial.entity_reader", reader)
    with pytest.raises(MalformedResponse):
        codec.decode_response(kind, version, data)


def test_leaving_reports_the_error_of_the_member() -> None:
    response = leave5.LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        members=(
            leave5.MemberResponse(
                member_id="m", group_instance_id=None, error_code=ErrorCode.fenced_instance_id
            ),
        ),
    )
    data = frames.header(flexible=True) + frames.body(response)
    decoded = codec.decode_response(messages.LeaveGroupRequest, 5, data)
    assert decoded.message == messages.LeaveGroupResponse(error=ErrorCode.fenced_instance_id)


def test_a_topic_that_is_asked_for_by_name_and_comes_without_one_is_no_crash() -> None:
    topic = metadata12.MetadataResponseTopic(
        error_code=ErrorCode.unknown_topic_id, name=None, topic_id=None, partitions=()
    )
    response = metadata12.MetadataResponse(
        throttle_time=NO_THROTTLE, brokers=(), cluster_id=None, topics=(topic,)
    )
    data = frames.header(flexible=True) + frames.body(response)
    decoded = codec.decode_response(messages.MetadataRequest, 12, data)
    assert isinstance(decoded.message, messages.MetadataResponse)
    assert decoded.message.topics[0].name == ""
    assert decoded.message.topics[0].topic_id == bytes(16)


FLEXIBLE = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in codec.REQUESTS
    for version in codec.versions(kind)
    if codec._dialect(kind, version).flexible
]


@pytest.mark.parametrize(("kind", "version"), FLEXIBLE)
def test_a_tag_count_of_zero_in_two_bytes_is_no_response_header(
    kind: type[Request], version: int
) -> None:
    frame = frames.frame(kind, version, random.Random(1))
    corrupt = frame[:4] + b"\x80\0" + frame[5:]
    with pytest.raises(MalformedResponse, match="fewest bytes"):
        codec.decode_response(kind, version, corrupt)


@pytest.mark.parametrize(
    ("length", "error"),
    [("8300", "fewest bytes"), ("ffffffff1f", "32 bits"), ("ffffffffff01", "no end")],
)
def test_a_number_has_one_encoding(length: str, error: str) -> None:
    # ConsumerGroupHeartbeat v1: correlation id, tags, throttle time, error, then the message.
    frame = bytes.fromhex("00000001 00 00000000 0000" + length) + b"no" + bytes(40)
    with pytest.raises(MalformedResponse, match=error):
        codec.decode_response(messages.ConsumerGroupHeartbeatRequest, 1, frame)


@pytest.mark.parametrize("client_id", ["", "asyncrevoke", "ü" * 200, "x" * 32767])
@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_request_header_is_written_as_kio_writes_it(
    kind: type[Request], version: int, client_id: str
) -> None:
    dialect = codec._dialect(kind, version)
    header_type = v2.RequestHeader if dialect.flexible else v1.RequestHeader
    header = header_type(
        request_api_key=i16(dialect.api_key),
        request_api_version=i16(version),
        correlation_id=i32(7),
        client_id=client_id,
    )
    assert codec.encode_header(kind, version, 7, client_id) == codec._write(header)


def test_a_client_id_that_is_too_long_for_a_header_is_named() -> None:
    with pytest.raises(ValueError, match="client_id has 32768 bytes"):
        codec.encode_header(messages.HeartbeatRequest, 3, 7, "x" * 32768)
