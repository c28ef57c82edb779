"""Data that members of a classic group exchange: subscriptions, assignments and user data.

An input is one byte that says what it is, then the bytes. What is promised: it is read, or rejected
with ``MalformedMemberData``; what is read has no more parts than it has bytes, and is read the same
after it was written again; and a leader takes of it what a group can have, with any assignor.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from wire.frames.response_frames import damage

from asyncrevoke.client.config.topics import is_legal_topic
from asyncrevoke.client.core.assignors import ASSIGNORS
from asyncrevoke.client.core.assignors.ownership import generation_of
from asyncrevoke.client.core.assignors.sticky import StickyAssignor
from asyncrevoke.client.core.membership.classic.led_generation import (
    read_subscription,
)
from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    checksum,
    decode_assignment_user_data,
    encode_assignment_user_data,
    reads_maps,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_assignment,
    decode_subscription,
    decode_with_unread_size,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    import random

_TOPICS = ("", "a", "orders", "x" * 249, "y" * 3000, "ä", "a/b", "a\nb", ".", "..", "\0")
_STICKY = StickyAssignor()
# The one that the group has just joined.
_GENERATION = 5
_NUMBERS = (0, 1, 2, 9, 1000, 2**31 - 1)
_COUNTS = (-1, 0, 1, 2**15, 2**31 - 1, -(2**31))


class MemberBlobs:
    """Subscriptions and assignments."""

    name: ClassVar[str] = "member_blobs"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: random.Random) -> bytes:
        """One of a client, whole or damaged."""
        partitions = [
            TopicPartition(random.choice(_TOPICS), random.choice(_NUMBERS))
            for _ in range(random.choice((0, 1, 3, 20)))
        ]
        if random.random() < 0.5:
            note = random.choice(
                (
                    b"",
                    encode_assignment_user_data(
                        AssignmentUserData(random.random() < 0.5, 9, random.random() < 0.5)
                    ),
                    random.randbytes(9),
                )
            )
            kind, data = b"a", encode_assignment(partitions, note)
        else:
            subscription = Subscription(
                topics=tuple(random.choice(_TOPICS) for _ in range(random.choice((0, 1, 3, 50)))),
                owned=tuple(partitions),
                generation=random.choice((-1, 0, 7, 2**31 - 1)),
                rack=random.choice((None, "", "rack")),
                user_data=random.choice(
                    (None, b"", random.randbytes(30), _STICKY.user_data(7, partitions))
                ),
            )
            # A version may be claimed whose last fields are missing.
            written, claimed = sorted(random.randrange(4) for _ in range(2))
            data = encode_subscription(subscription, written)
            kind, data = b"s", bytes((0, claimed)) + data[2:]
        how = random.randrange(10)
        if how < 4:
            data = damage(data, random)
        elif how < 6 and len(data) >= 6:
            at = random.randrange(len(data) - 3)
            wrong = random.choice(_COUNTS).to_bytes(4, "big", signed=True)
            data = data[:at] + wrong + data[at + 4 :]
        elif how == 6:
            data = random.choice((b"\0\4", b"\x7f\xff", b"\xff\xff", b"")) + data[2:]
        return kind + data

    def check(self, data: bytes) -> None:
        """Read it."""
        try:
            if data[:1] == b"a":
                self._assignment(data[1:])
            else:
                self._subscription(data[1:])
        except MalformedMemberData:
            self.counts["rejected"] += 1
        else:
            self.counts["read"] += 1

    def _assignment(self, data: bytes) -> None:
        partitions, note = decode_assignment(data)
        assert len(partitions) <= len(data)
        assert all(number >= 0 for _, number in partitions)
        decode_assignment_user_data(note)
        again, note_again = decode_assignment(encode_assignment(partitions, note))
        assert (sorted(again), note_again) == (sorted(partitions), note)

    def _reported(self, data: bytes) -> None:
        for assignor in ASSIGNORS.values():
            found = read_subscription(data, _GENERATION, assignor).subscription
            assert all(map(is_legal_topic, found.topics))
            assert all(is_legal_topic(tp.topic) for tp in found.owned)
            assert len(set(found.topics)) == len(found.topics)
            assert len(set(found.owned)) == len(found.owned) <= len(data)
            assert not found.owned or generation_of(found) < _GENERATION

    def _subscription(self, data: bytes) -> None:
        self._reported(data)
        found, unread = decode_with_unread_size(data)
        assert 0 <= unread < len(data)
        assert len(found.topics) + len(found.owned) <= len(data)
        assert all(number >= 0 for _, number in found.owned)
        reads_maps(found.user_data)
        checksum(dict.fromkeys(found.topics))
        again = decode_subscription(encode_subscription(found))
        assert sorted(again.topics) == sorted(found.topics)
        assert sorted(again.owned) == sorted(found.owned)
        assert (again.generation, again.rack, again.user_data) == (
            found.generation,
            found.rack,
            found.user_data,
        )
