"""The guard walks what kio's decoder reads: compared for each primitive type, marker and header."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.schema.consumer_group_heartbeat.v1 import response as heartbeat1
from kio.serial import _parse, entity_reader
from kio.serial.errors import SerialError
from wire.frames import response_frames as frames

import asyncrevoke
from asyncrevoke.client.groups import requests as groups
from asyncrevoke.client.protocol import codec, guard, messages
from asyncrevoke.client.protocol.guard import HostileFrame, Walk

if TYPE_CHECKING:
    from kio.serial.readers import Reader
    from kio.static.protocol import Entity, ResponsePayload

    from asyncrevoke.client.protocol.messages import Request

REJECTIONS = (SerialError, ValueError, TypeError, KeyError, OverflowError)
TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64"),
    *("uuid", "timedelta_i32", "timedelta_i64", "datetime_i64"),
    *("error_code", "string", "bytes", "records"),
)
SPOKEN = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in codec.REQUESTS
    for version in codec.versions(kind)
]
HOSTILE = (
    b"\x00",
    b"\x01",
    b"\x80",
    b"\xff",
    b"\x7f",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00",
)


def reader_of(kafka_type: str, flexible: bool, optional: bool) -> Reader[object]:
    """How kio's decoder reads a primitive."""
    read: Reader[object] = cast("Any", _parse).get_reader(kafka_type, flexible, optional)
    return read


def supported() -> list[tuple[str, bool, bool]]:
    """Every primitive that kio's decoder has a reader for."""
    found: list[tuple[str, bool, bool]] = []
    for kafka_type, flexible, optional in itertools.product(TYPES, (False, True), (False, True)):
        try:
            reader_of(kafka_type, flexible, optional)
        except NotImplementedError:
            continue
        found.append((kafka_type, flexible, optional))
    return found


def damaged_values(rng: random.Random) -> bytes:
    pieces = [rng.choice((*HOSTILE, b"\x02", b"ab", rng.randbytes(3))) for _ in range(12)]
    return b"".join(pieces)[: rng.randrange(30)]


def end_of_walk(step: guard._Step, data: bytes) -> int | None:
    """Where the guard ends, None if it rejects the bytes."""
    try:
        end = step(Walk(data), 0)
    except (HostileFrame, IndexError):
        return None
    return end if end <= len(data) else None


@pytest.mark.parametrize(("kafka_type", "flexible", "optional"), supported())
def test_a_primitive_is_walked_as_far_as_kio_reads(
    kafka_type: str, flexible: bool, optional: bool
) -> None:
    step, least = guard._primitive(kafka_type, flexible=flexible)
    read = reader_of(kafka_type, flexible, optional)
    rng = random.Random(f"{kafka_type} {flexible} {optional}")
    walked = 0
    for _ in range(600):
        data = damaged_values(rng)
        end = end_of_walk(step, data)
        if end is None:
            continue
        assert end >= least
        walked += 1
        try:
            size = read(data, 0)[1]
        except REJECTIONS:
            continue  # so does the codec then
        assert size == end, data.hex()
    assert walked > 20


def test_every_primitive_of_kio_is_known() -> None:
    assert {kafka_type for kafka_type, _, _ in supported()} == set(TYPES)
    with pytest.raises(TypeError):
        guard._primitive("varlong", flexible=True)


def test_a_structure_that_may_be_missing_is_so_for_both_or_rejected() -> None:
    response = heartbeat1.ConsumerGroupHeartbeatResponse
    start = bytes(4) + bytes(2) + b"\0\0" + struct.pack(">ii", 3, 5000)
    accepted: set[int] = set()
    for marker, rest in itertools.product(range(256), (b"\0", b"\x01\0\0")):
        try:
            walked = guard.walk(start + bytes((marker,)) + rest, 0, response)
        except HostileFrame:
            continue
        accepted.add(marker)
        assert entity_reader(response)(walked.body, 0)[1] == len(walked.body)
    assert accepted == {0xFF, 1}


def responses_of_groups() -> list[type[ResponsePayload]]:
    """What ``asyncrevoke groups`` decodes."""
    kinds: list[type[messages.EntityRequest[Any]]] = [
        groups.ListGroupsRequest,
        groups.DescribeGroupsRequest,
        groups.ConsumerGroupDescribeRequest,
        groups.ShareGroupDescribeRequest,
        groups.DescribeShareGroupOffsetsRequest,
        groups.AlterShareGroupOffsetsRequest,
        groups.DeleteShareGroupOffsetsRequest,
    ]
    return [
        codec._dialect(kind, version).response_type
        for kind in kinds
        for version in codec.versions(kind)
    ]


@pytest.mark.parametrize(
    "response_type", responses_of_groups(), ids=lambda kind: f"{kind.__name__} v{kind.__version__}"
)
def test_responses_to_the_groups_command_are_walked_as_kio_reads_them(
    response_type: type[ResponsePayload],
) -> None:
    rng = random.Random(1)
    flexible = response_type.__header_schema__.__flexible__
    for _ in range(20):
        entity = frames.sample(response_type, rng)
        data = frames.header(flexible=flexible) + frames.body(entity)
        decoded, walked = guard.read_response(data, response_type)
        assert entity_reader(response_type)(walked.body, 0) == (decoded, len(walked.body))


@pytest.mark.parametrize(("kind", "version"), SPOKEN)
def test_the_header_of_a_response_is_that_of_its_schema(kind: type[Request], version: int) -> None:
    dialect = codec._dialect(kind, version)
    frame = frames.frame(kind, version, random.Random(2))
    plain = codec.decode_response(kind, version, frame)
    assert dialect.response_type.__header_schema__.__flexible__ == dialect.flexible
    if not dialect.flexible:
        return
    tagged = frame[:4] + b"\x02\x00\x01a\xff\x01\x02bc" + frame[5:]
    assert codec.decode_response(kind, version, tagged) == plain
    for count in (b"\x81\x00", b"\x7f", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(codec.MalformedResponse):
            codec.decode_response(kind, version, frame[:4] + count + frame[5:])


def test_a_null_is_rejected_where_the_schema_has_none() -> None:
    # throttle time, error, session, then an array of topics that is null
    data = bytes(4) + b"\0" + bytes(10) + b"\0\0"
    with pytest.raises(codec.MalformedResponse, match="count"):
        codec.decode_response(messages.FetchRequest, 13, data)
    no_partitions = bytes(4) + b"\0" + bytes(10) + b"\x02" + bytes(16) + b"\0\0\0"
    with pytest.raises(codec.MalformedResponse, match="count"):
        codec.decode_response(messages.FetchRequest, 13, no_partitions)


def test_only_the_guard_calls_the_decoder_of_kio() -> None:
    """Bytes that no walk has seen can end the process."""
    package = Path(asyncrevoke.__file__).parent
    callers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "entity_reader" in path.read_text(encoding="utf-8")
        or "_kio_native" in path.read_text(encoding="utf-8")
        or "kio.serial.readers" in path.read_text(encoding="utf-8")
    }
    # pieces reads what was walked
    assert callers == {"client/protocol/guard.py", "client/protocol/pieces.py"}


def test_an_entity_is_decoded_from_a_copy_that_ends_where_the_walk_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[bytes] = []
    real = entity_reader

    def noted(entity_type: type[Entity]) -> object:
        def read(data: bytes, offset: int) -> object:
            given.append(data)
            assert offset == 0
            return real(entity_type)(data, offset)

        return read

    monkeypatch.setattr("kio.serial.entity_reader", noted)
    frame = frames.frame(messages.JoinGroupRequest, 9, random.Random(3))
    codec.decode_response(messages.JoinGroupRequest, 9, frame + b"more")
    assert given == [frame[5:]]
