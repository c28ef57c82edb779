"""Response frames of the requests that are used as kio decodes them: of the producer, of
``asyncrevoke groups``, of the broker's administration, and of a topic's settings.

An input is one byte that chooses the request and version, then the frame. What is promised: a frame
is decoded or rejected with ``MalformedResponse``, nothing else, at once and in pieces; and
kafka-python reads what is accepted with the same values.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from wire.frames import response_frames, second_codec
from wire.frames.entity_requests import ENTITY_REQUESTS

from asyncrevoke.client.protocol import codec, guard

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from asyncrevoke.client.protocol.messages import EntityRequest

    Spoken: TypeAlias = tuple[type[EntityRequest[Any]], int]

_SPOKEN: list[Spoken] = [
    (kind, version) for kind in ENTITY_REQUESTS for version in codec.versions(kind)
]
_AFTER_CORRELATION = 4


class EntityFrames:
    """Builds frames with random legal values, most of them damaged then. ``spoken``: of which
    requests and versions; all if left out."""

    name: ClassVar[str] = "entity_frames"

    def __init__(self, spoken: Sequence[Spoken] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._spoken = spoken or _SPOKEN

    def generate(self, random: random.Random) -> bytes:
        """Build a legal frame, and damage it in four cases of five."""
        index = random.randrange(len(self._spoken))
        frame = response_frames.frame(*self._spoken[index], random)
        if random.random() < 0.8:
            head, rest = frame[:_AFTER_CORRELATION], frame[_AFTER_CORRELATION:]
            frame = head + response_frames.damage(rest, random)
        return bytes((index,)) + frame

    def check(self, data: bytes) -> None:
        """Decode the frame."""
        if not data:
            return
        kind, version = self._spoken[data[0] % len(self._spoken)]
        frame = data[1:]
        try:
            decoded = codec.decode_response(kind, version, frame, None)
        except codec.MalformedResponse as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            self.counts["rejected"] += 1
            return
        self.counts["accepted"] += 1
        dialect = codec._dialect(kind, version)
        again = codec._read(dialect, version, frame, None, in_pieces=False)
        if again != decoded:
            raise AssertionError(f"read {decoded}, and again {again}")
        codec._read(dialect, version, frame, None, in_pieces=True)
        entity, walked = guard.read_response(frame, dialect.response_type)
        second_codec.check(entity, walked)
