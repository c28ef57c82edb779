"""Messages to bytes and back."""

from __future__ import annotations

import datetime
import io
import random
import struct
import uuid
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.fetch.v11 import response as fetch11
from kio.schema.fetch.v12 import response as fetch12
from kio.schema.fetch.v13 import response as fetch13
from kio.schema.heartbeat.v3.response import HeartbeatResponse as Heartbeat3
from kio.schema.heartbeat.v4.response import HeartbeatResponse as Heartbeat4
from kio.schema.leave_group.v5 import response as leave5
from kio.schema.metadata.v12 import response as metadata12
from kio.schema.offset_commit.v10 import response as commit10
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i32, i32Timedelta, i64
from wire.frames import response_frames as frames

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol import codec, messages
from asyncrevoke.protocol.codec import MalformedResponse, UnsupportedVersion
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.protocol.messages import Request

TP = TopicPartition("t", 3)
TOPIC_IDS = {
    "t": bytes(range(16)),
    "u": bytes(range(16, 32)),
    "v": bytes(range(32, 48)),
}
NO_THROTTLE = cast("i32Timedelta", datetime.timedelta(0))
EVERY_VERSION = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in codec.REQUESTS
    for version in codec.versions(kind)
]
REQUESTS: tuple[Request, ...] = (
    messages.MetadataRequest(topics=("a", "b")),
    messages.MetadataRequest(topics=None),
    messages.FindCoordinatorRequest(group_id="g"),
    messages.JoinGroupRequest(
        group_id="g",
        session_timeout=45,
        rebalance_timeout=300,
        member_id="m",
        group_instance_id="i",
        protocols=(("range", b"r"), ("sticky", b"s")),
        reason="because" * 100,
    ),
    messages.SyncGroupRequest(
        group_id="g",
        generation=4,
        member_id="m",
        group_instance_id=None,
        protocol_name="range",
        assignments=(("m", b"all"),),
    ),
    messages.HeartbeatRequest(group_id="g", generation=4, member_id="m", group_instance_id="i"),
    messages.LeaveGroupRequest(group_id="g", member_id="m", group_instance_id=None, reason="r"),
    messages.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        group_instance_id="i",
        rack="r",
        rebalance_timeout=300,
        topics=("t", "u"),
        assignor="uniform",
        owned=((bytes(range(16)), (3, 4)),),
    ),
    messages.OffsetCommitRequest(
        group_id="g",
        generation=4,
        member_id="m",
        group_instance_id=None,
        entries=(
            messages.CommitEntry(partition=TP, offset=2**62, leader_epoch=5, metadata="é"),
            messages.CommitEntry(partition=TopicPartition("u", 0), offset=1),
            messages.CommitEntry(partition=TopicPartition("t", 4), offset=1),
        ),
        topic_ids=TOPIC_IDS,
    ),
    messages.OffsetFetchRequest(
        group_id="g", partitions=(TP, TopicPartition("u", 0)), topic_ids=TOPIC_IDS
    ),
    messages.ListOffsetsRequest(
        queries=(messages.OffsetQuery(partition=TP, timestamp=-2, leader_epoch=1),)
    ),
    messages.OffsetsForLeaderEpochRequest(
        queries=(
            messages.EpochQuery(partition=TP, epoch=3, leader_epoch=5),
            messages.EpochQuery(partition=TopicPartition("u", 0), epoch=0),
        )
    ),
    messages.FetchRequest(
        partitions=(
            messages.FetchPartition(partition=TP, offset=7, max_bytes=100, leader_epoch=2),
            messages.FetchPartition(partition=TopicPartition("u", 0), offset=8, max_bytes=100),
            messages.FetchPartition(partition=TopicPartition("t", 4), offset=9, max_bytes=100),
        ),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1000,
        read_committed=True,
        rack="r",
        topic_ids=TOPIC_IDS,
    ),
    messages.FetchRequest(
        partitions=(messages.FetchPartition(partition=TP, offset=7, max_bytes=100),),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1000,
        session_id=2**31 - 1,
        session_epoch=1,
        forgotten=(TopicPartition("u", 0), TopicPartition("u", 3), TopicPartition("v", 1)),
        topic_ids=TOPIC_IDS,
    ),
)


def offered(kind: type[Request], lowest: int, highest: int) -> dict[int, tuple[int, int]]:
    return {codec.api_key(kind): (lowest, highest)}


@pytest.mark.parametrize("kind", codec.REQUESTS)
def test_the_preferred_version_is_used_where_it_is_offered(kind: type[Request]) -> None:
    preferred, *others = codec.versions(kind)
    assert codec.choose_version(kind, offered(kind, 0, 99)) == preferred
    for version in (preferred, *others):
        assert codec.choose_version(kind, offered(kind, version, version)) == version


# What Apache Kafka 2.4 and 4.3 offer.
KAFKA_2_4 = {1: 11, 2: 5, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 23: 3}
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
    23: (2, 4),
    68: (0, 1),
}


@pytest.mark.parametrize("kind", codec.REQUESTS)
def test_kafka_2_4_and_4_3_are_served(kind: type[Request]) -> None:
    old = {key: (0, highest) for key, highest in KAFKA_2_4.items()}
    if kind is messages.ConsumerGroupHeartbeatRequest:
        with pytest.raises(UnsupportedVersion, match="does not offer ConsumerGroupHeartbeat"):
            codec.choose_version(kind, old)
    else:
        assert codec.choose_version(kind, old) in codec.versions(kind)
    assert codec.choose_version(kind, KAFKA_4_3) == codec.versions(kind)[0]


def test_a_broker_that_is_too_old_is_told_apart_from_one_that_is_too_new() -> None:
    kind = messages.FetchRequest
    with pytest.raises(
        UnsupportedVersion,
        match=r"versions 0 to 3 of Fetch.* 11 and 12 and 13: upgrade the brokers",
    ):
        codec.choose_version(kind, offered(kind, 0, 3))
    with pytest.raises(UnsupportedVersion, match="upgrade asyncrevoke"):
        codec.choose_version(kind, offered(kind, 40, 50))


def test_a_server_without_groups_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="does not offer JoinGroup"):
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


def _fetch(
    partitions: list[tuple[str, int, int, int, int]],
    forgotten: list[tuple[str, int]],
    rack: str,
    wait: float,
    numbers: tuple[int, int, int, int],
) -> messages.FetchRequest:
    low, most, session_id, epoch = numbers
    return messages.FetchRequest(
        partitions=tuple(
            messages.FetchPartition(
                partition=TopicPartition(topic, number),
                offset=offset,
                max_bytes=size,
                leader_epoch=leader,
            )
            for topic, number, offset, size, leader in partitions
        ),
        forgotten=tuple(TopicPartition(*partition) for partition in forgotten),
        rack=rack,
        max_wait=wait,
        min_bytes=low,
        max_bytes=most,
        read_committed=bool(epoch % 2),
        session_id=session_id,
        session_epoch=epoch,
        topic_ids=TOPIC_IDS,
    )


NUMBERS = st.integers(-1, 2**31 - 1)
NAMES = st.sampled_from(sorted(TOPIC_IDS))


@given(
    st.builds(
        _fetch,
        st.lists(
            st.tuples(NAMES, NUMBERS, st.integers(-1, 2**63 - 1), NUMBERS, NUMBERS), max_size=200
        ),
        st.lists(st.tuples(NAMES, NUMBERS), max_size=1),
        st.text(st.characters(codec="utf-8"), max_size=200),
        st.floats(0, 1e7),
        st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    )
)
def test_what_is_written_without_kio_reads_as_if_kio_had_written_it(
    message: messages.FetchRequest,
) -> None:
    for version in codec.versions(messages.FetchRequest):
        entity = codec._dialect(messages.FetchRequest, version).build(message)
        data = codec.encode_request(message, version)
        assert data == codec._write(entity)


@pytest.mark.parametrize("version", [11, 13])
def test_a_usual_fetch_is_written_without_kio(version: int) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    assert dialect.shortcut.write(REQUESTS[-2]) == codec.encode_request(REQUESTS[-2], version)
    assert dialect.shortcut.write(REQUESTS[-1]) is None


def test_partitions_of_a_fetch_keep_their_order() -> None:
    entity = codec._dialect(messages.FetchRequest, 11).build(REQUESTS[-2])
    assert [topic.topic for topic in entity.topics] == ["t", "u", "t"]  # type: ignore[attr-defined]
    entity = codec._dialect(messages.FetchRequest, 13).build(REQUESTS[-2])
    ids = [topic.topic_id.bytes for topic in entity.topics]  # type: ignore[attr-defined]
    assert ids == [TOPIC_IDS["t"], TOPIC_IDS["u"], TOPIC_IDS["t"]]


def test_partitions_of_a_commit_are_grouped_by_topic() -> None:
    entity = codec._dialect(messages.OffsetCommitRequest, 7).build(REQUESTS[8])
    grouped = [(t.name, [p.partition_index for p in t.partitions]) for t in entity.topics]  # type: ignore[attr-defined]
    assert grouped == [("t", [3, 4]), ("u", [0])]


def test_topics_go_by_their_ids_only_if_all_of_these_are_known() -> None:
    commit, fetch, records = REQUESTS[8], REQUESTS[9], REQUESTS[-2]
    for message, by_id, by_name in ((commit, 10, 9), (fetch, 10, 9), (records, 13, 11)):
        kind = type(message)
        assert codec.has_topic_ids(message)
        unknown = msgspec.structs.replace(message, topic_ids=None)
        assert not codec.has_topic_ids(unknown)
        assert codec.choose_version(kind, KAFKA_4_3, by_id=True) == by_id
        assert codec.choose_version(kind, KAFKA_4_3, by_id=False) == by_name
        with pytest.raises(ValueError, match="the id of topic 't' is unknown"):
            codec.encode_request(unknown, by_id)


def test_a_commit_by_ids_is_answered_by_the_names_that_were_asked_about() -> None:
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
    with pytest.raises(ValueError, match=r"before Apache Kafka 4\.0 match no regular"):
        codec.encode_request(message, 0)


def test_a_reason_is_cut_to_what_brokers_accept() -> None:
    entity = codec._dialect(messages.JoinGroupRequest, 9).build(REQUESTS[3])
    assert len(entity.reason) == 255  # type: ignore[attr-defined]


def test_a_request_that_does_not_fit_is_refused_with_a_sentence() -> None:
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
def test_a_response_that_is_cut_off_is_refused(kind: type[Request], version: int) -> None:
    data = frames.frame(kind, version, random.Random(1))
    for length in range(len(data)):
        with pytest.raises(MalformedResponse):
            codec.decode_response(kind, version, data[:length])


def fetched(version: int) -> bytes:
    """One partition, in version 13 beside topics that nobody has asked about."""
    schema: Any = {11: fetch11, 12: fetch12, 13: fetch13}[version]
    more: dict[str, object] = {}
    if version == 12:
        more["current_leader"] = schema.LeaderIdAndEpoch(leader_id=BrokerId(2), leader_epoch=i32(1))
    partition = schema.PartitionData(
        partition_index=i32(3),
        error_code=ErrorCode.none,
        high_watermark=i64(10),
        last_stable_offset=i64(9),
        log_start_offset=i64(1),
        aborted_transactions=(
            schema.AbortedTransaction(producer_id=ProducerId(5), first_offset=i64(2)),
        ),
        preferred_read_replica=BrokerId(4),
        records=Records(b"bytes"),
        **more,
    )
    ids = None, uuid.UUID(int=99), uuid.UUID(bytes=TOPIC_IDS["t"])
    topics: list[dict[str, object]] = [{"topic": TopicName("t")}]
    if version == 13:
        topics = [{"topic_id": topic_id} for topic_id in ids]
    response = schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(
            schema.FetchableTopicResponse(**topic, partitions=(partition,)) for topic in topics
        ),
    )
    return frames.header(flexible=version != 11) + frames.body(response)


@pytest.mark.parametrize("version", [11, 12, 13])
def test_what_was_fetched_arrives_whole(version: int) -> None:
    data = fetched(version)
    decoded = codec.decode_response(messages.FetchRequest, version, data, REQUESTS[-2])
    assert decoded.message == messages.FetchResponse(
        error=ErrorCode.none,
        partitions=(
            messages.FetchedPartition(
                partition=TP,
                error=ErrorCode.none,
                high_watermark=10,
                last_stable_offset=9,
                log_start_offset=1,
                aborted=(messages.AbortedTransaction(producer_id=5, first_offset=2),),
                preferred_read_replica=4,
                records=b"bytes",
            ),
        ),
    )


def _answer(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> bytes:
    """A response of the usual shape."""
    schema: Any = fetch11 if version == 11 else fetch13
    responses = tuple(
        schema.FetchableTopicResponse(
            **({"topic": topic} if version == 11 else {"topic_id": _id(topic)}),
            partitions=tuple(
                schema.PartitionData(
                    partition_index=i32(number),
                    error_code=ErrorCode.none,
                    high_watermark=i64(offset),
                    last_stable_offset=i64(offset - 1),
                    log_start_offset=i64(offset // 2),
                    aborted_transactions=None if number % 2 else (),
                    preferred_read_replica=BrokerId(replica),
                    records=None if records is None else Records(records),
                )
                for number, offset, replica, records in partitions
            ),
        )
        for topic, partitions in topics
    )
    response = schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        session_id=i32(session_id),
        responses=responses,
    )
    return frames.header(flexible=version != 11) + frames.body(response)


def _id(topic: str) -> uuid.UUID:
    return uuid.UUID(bytes=TOPIC_IDS[topic]) if topic in TOPIC_IDS else uuid.uuid5(BASE, topic)


BASE = uuid.UUID(int=1)
TOPICS = st.lists(
    st.tuples(
        st.sampled_from([*sorted(TOPIC_IDS), "another"]),
        st.lists(
            st.tuples(
                NUMBERS,
                st.integers(0, 2**63 - 1),
                NUMBERS,
                st.none() | st.binary(max_size=300),
            ),
            max_size=4,
        ),
    ),
    max_size=4,
)


@pytest.mark.parametrize("version", [11, 13])
@given(session_id=NUMBERS, topics=TOPICS)
def test_what_is_read_without_kio_is_what_kio_reads(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    frame = _answer(version, session_id, topics)
    read = dialect.shortcut.read(frame, 4, REQUESTS[-2])
    assert read == codec._read(dialect, version, frame, REQUESTS[-2], in_pieces=False).message
    assert read is not None


@pytest.mark.parametrize("version", [11, 13])
@given(
    at=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    cut=st.none() | st.integers(1, 80),
    more=st.binary(max_size=2),
)
def test_what_is_spoiled_is_read_by_kio_or_as_kio_reads_it(
    version: int, at: float, byte: int, cut: int | None, more: bytes
) -> None:
    partitions: list[tuple[int, int, int, bytes | None]] = [
        (3, 9, -1, b"records"),
        (4, 1, -1, None),
    ]
    frame = bytearray(_answer(version, 7, [("t", partitions), ("u", partitions)]))
    frame[int(at * len(frame))] = byte
    spoiled = bytes(frame[: None if cut is None else -cut]) + more
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    read = dialect.shortcut.read(spoiled, 4, REQUESTS[-2])
    if read is not None:
        assert read == codec._read(dialect, version, spoiled, REQUESTS[-2], in_pieces=False).message


@pytest.mark.parametrize("version", [11, 12])
def test_an_unknown_error_code_spoils_its_own_partition_only(version: int) -> None:
    data = fetched(version)
    index = data.index(struct.pack(">i", 3))  # the error code follows the partition
    data = data[: index + 4] + struct.pack(">h", 9999) + data[index + 6 :]
    decoded = codec.decode_response(messages.FetchRequest, version, data)
    assert decoded.unknown_errors == (9999,)
    assert isinstance(decoded.message, messages.FetchResponse)
    assert decoded.message.error is ErrorCode.none
    (partition,) = decoded.message.partitions
    assert partition.error is ErrorCode.unknown_server_error
    assert partition.records == b"bytes"


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
def test_a_count_greater_than_the_bytes_left_is_refused_before_decoding(
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
    spoiled = frame[:4] + b"\x80\0" + frame[5:]
    with pytest.raises(MalformedResponse, match="fewest bytes"):
        codec.decode_response(kind, version, spoiled)


@pytest.mark.parametrize(
    ("length", "error"),
    [("8300", "fewest bytes"), ("ffffffff1f", "32 bits"), ("ffffffffff01", "no end")],
)
def test_a_number_has_one_encoding(length: str, error: str) -> None:
    # ConsumerGroupHeartbeat v1: correlation id, tags, throttle time, error, then the message.
    frame = bytes.fromhex("00000001 00 00000000 0000" + length) + b"no" + bytes(40)
    with pytest.raises(MalformedResponse, match=error):
        codec.decode_response(messages.ConsumerGroupHeartbeatRequest, 1, frame)
