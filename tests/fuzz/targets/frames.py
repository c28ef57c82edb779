"""Whole response frames of every request and version that the consumer speaks, with those that
open a connection.

An input is one byte that chooses the version and whether the request is at hand, then the frame.
What is promised: a frame is decoded or rejected with ``MalformedResponse``, nothing else; the
message has no more parts than the frame has bytes; a usual fetch and a broker's versions are read
by their shortcuts as by the guarded decoder; and kafka-python reads what is accepted with the same
values.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

import msgspec
from wire.frames import response_frames, second_codec

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, guard, messages

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from asyncrevoke.client.protocol.messages import Request

    Spoken: TypeAlias = tuple[type[Request], int]

_SPOKEN: list[Spoken] = [
    (kind, version)
    for kind in (*codec.REQUESTS, *codec.OPENING_REQUESTS)
    for version in codec.versions(kind)
]
_REQUEST_AT_HAND = 0x80
_IDS = {"topic": response_frames.KNOWN_TOPIC.bytes}
_PARTITION = TopicPartition("topic", 0)
_REQUESTS: dict[type[Request], Request] = {
    messages.FetchRequest: messages.FetchRequest(
        partitions=(messages.FetchPartition(partition=_PARTITION, offset=0, max_bytes=1),),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1,
        topic_ids=_IDS,
    ),
    messages.OffsetFetchRequest: messages.OffsetFetchRequest(
        group_id="g", partitions=(_PARTITION,), topic_ids=_IDS
    ),
    messages.OffsetCommitRequest: messages.OffsetCommitRequest(
        group_id="g",
        generation=1,
        member_id="m",
        group_instance_id=None,
        entries=(),
        topic_ids=_IDS,
    ),
}
# The count of the header's tagged fields stands behind the correlation id.
_TAGS_AT = 4
_HEADERS = (
    b"\x80\0",
    b"\x80\x80\0",
    b"\x01\0\0",
    b"\x02\x07\x01z\x63\x03abc",
    b"\x7f",
    b"\x81\0\0\0",
)


class Frames:
    """Builds frames with random legal values, most of them damaged then. ``spoken``: of which
    requests and versions; all if left out."""

    name: ClassVar[str] = "frames"

    def __init__(self, spoken: Sequence[Spoken] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._spoken = spoken or _SPOKEN

    def generate(self, random: random.Random) -> bytes:
        """Build a legal frame, and damage it in four cases of five."""
        index = random.randrange(len(self._spoken))
        kind, version = self._spoken[index]
        frame = response_frames.frame(kind, version, random)
        damage = random.random()
        if damage < 0.1:
            frame = frame[:_TAGS_AT] + random.choice(_HEADERS) + frame[_TAGS_AT + 1 :]
        if damage < 0.8:
            frame = frame[:_TAGS_AT] + response_frames.damage(frame[_TAGS_AT:], random)
        chosen = index | (_REQUEST_AT_HAND if random.random() < 0.7 else 0)
        return bytes((chosen,)) + frame

    def check(self, data: bytes) -> None:
        """Decode the frame."""
        if not data:
            return
        kind, version = self._spoken[(data[0] & ~_REQUEST_AT_HAND) % len(self._spoken)]
        request = _REQUESTS.get(kind) if data[0] & _REQUEST_AT_HAND else None
        frame = data[1:]
        try:
            decoded = codec.decode_response(kind, version, frame, request)
        except codec.MalformedResponse as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            self.counts["rejected"] += 1
            return
        self.counts["accepted"] += 1
        if (parts := _parts(decoded.message)) > len(frame) + 1:
            raise AssertionError(f"{parts} parts of {len(frame)} bytes")
        # Without its shortcut, a fetch is read as anything else is.
        dialect = codec._dialect(kind, version)
        for in_pieces in (False, True):
            again = codec._read(dialect, version, frame, request, in_pieces=in_pieces)
            if again != decoded:
                raise AssertionError(f"read {decoded}, and again {again} ({in_pieces=})")
        entity, walked = guard.read_response(frame, dialect.response_type)
        second_codec.check(entity, walked)


def _parts(value: object) -> int:
    """How many messages and elements there are in it, itself one."""
    if isinstance(value, TopicPartition):
        return 0
    if isinstance(value, msgspec.Struct):
        return 1 + sum(_parts(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return sum(max(_parts(each), 1) for each in cast("tuple[object, ...]", value))
    return 0
