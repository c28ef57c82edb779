"""Response frames of share groups alone: heartbeat, fetch, acknowledge (76, 78, 79), and of the
offsets and the description of a group (90, 77).

An input is one byte that says which of the two kinds follows, then an input of the target
``frames`` or ``entity_frames``, whose promises it checks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from fuzz.targets.entity_frames import EntityFrames
from fuzz.targets.frames import Frames

from asyncrevoke.client.groups.requests import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from asyncrevoke.client.protocol import codec
from asyncrevoke.client.protocol.share_messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    import random

_OF_MEMBERS = (ShareGroupHeartbeatRequest, ShareFetchRequest, ShareAcknowledgeRequest)
_OF_COMMANDS = (DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest)
_SHARE_OF_COMMANDS = 0.4


class ShareFrames:
    """Builds legal frames, most of them damaged then."""

    name: ClassVar[str] = "share_frames"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._frames = Frames([(k, v) for k in _OF_MEMBERS for v in codec.versions(k)])
        self._entities = EntityFrames([(k, v) for k in _OF_COMMANDS for v in codec.versions(k)])
        self._frames.counts = self._entities.counts = self.counts

    def generate(self, random: random.Random) -> bytes:
        """Build a legal frame of one of them, and damage it in four cases of five."""
        if random.random() < _SHARE_OF_COMMANDS:
            return b"\1" + self._entities.generate(random)
        return b"\0" + self._frames.generate(random)

    def check(self, data: bytes) -> None:
        """Decode the frame."""
        (self._entities if data[:1] == b"\1" else self._frames).check(data[1:])
