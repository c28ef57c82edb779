"""Large responses are decoded piece by piece: the same message as in one go."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.metadata.v12.response import MetadataResponse
from wire.frames import response_frames as frames

from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.guard import HostileFrame, read_response
from asyncrevoke.client.protocol.pieces import Pieces, read_in_pieces

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import Request

SPOKEN = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in codec.REQUESTS
    for version in codec.versions(kind)
]


@pytest.mark.parametrize(("kind", "version"), SPOKEN)
def test_a_response_in_pieces_is_the_same(kind: type[Request], version: int) -> None:
    dialect = codec._dialect(kind, version)
    rng = random.Random(f"{kind.__name__} {version}")
    for number in range(100):
        frame = frames.frame(kind, version, rng)
        if number % 2:
            frame = frame[:4] + frames.damage(frame[4:], rng)
        try:
            whole = codec._read(dialect, version, frame, None, in_pieces=False)
        except codec.MalformedResponse:
            # What nobody looks at is not decoded, and so not rejected: nothing else is raised.
            try:
                codec._read(dialect, version, frame, None, in_pieces=True)
            except codec.MalformedResponse:
                continue
        else:
            assert codec._read(dialect, version, frame, None, in_pieces=True) == whole


@pytest.mark.parametrize("version", [11, 13])
def test_a_fetch_of_very_many_partitions_is_not_read_on_the_event_loop(version: int) -> None:
    """No consumer asks a broker for so many: a hostile one could send a million in one frame."""
    many = 20_001
    if version == 11:
        partition = struct.pack(">ihqqqiii", 1, 0, 5, 5, 0, -1, -1, -1)
        start = struct.pack(">iihiih", 7, 0, 0, 0, 1, 1) + b"t"
        frame = start + struct.pack(">i", many) + partition * many
    else:
        partition = struct.pack(">ihqqqBiBB", 1, 0, 5, 5, 0, 0, -1, 0, 0)
        start = struct.pack(">ibihib", 7, 0, 0, 0, 0, 2) + frames.KNOWN_TOPIC.bytes
        frame = start + b"\xa2\x9c\x01" + partition * many + b"\0\0"
    request = messages.FetchRequest(
        partitions=(),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1,
        topic_ids={"t": frames.KNOWN_TOPIC.bytes},
    )
    assert codec.decode_fast_path(messages.FetchRequest, version, frame, request) is None
    response = codec.decode_response(messages.FetchRequest, version, frame, request).message
    assert isinstance(response, messages.FetchResponse)
    assert len(response.partitions) == many


def test_arrays_of_structures_are_sequences() -> None:
    rng = random.Random(7)
    for _ in range(30):
        data = frames.header(flexible=True) + frames.body(frames.sample(JoinGroupResponse, rng))
        response, _ = read_in_pieces(data, JoinGroupResponse)
        whole, _ = read_response(data, JoinGroupResponse)
        members = response.members
        assert isinstance(members, Pieces)
        assert tuple(members) == whole.members == tuple(members)
        assert len(members) == len(whole.members)
        assert bool(members) == bool(whole.members)
        if whole.members:
            assert members[0] == whole.members[0]
            assert members[:2] == whole.members[:2]
        with pytest.raises(IndexError):
            members[len(members)]


def test_elements_that_end_elsewhere_than_their_walk_are_rejected() -> None:
    rng = random.Random(3)
    data = frames.header(flexible=True) + frames.body(frames.sample(MetadataResponse, rng))
    response, _ = read_in_pieces(data, MetadataResponse)
    brokers = response.brokers
    assert isinstance(brokers, Pieces)
    brokers._end += 1
    with pytest.raises(HostileFrame):
        tuple(brokers)
