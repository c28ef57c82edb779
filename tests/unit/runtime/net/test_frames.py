"""Frames as they come from a socket: in whatever pieces, and no larger than they may be."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.runtime.net.frames import Frames, FrameTooLargeError

LIMIT = 1000


class Ends:
    """What comes out of frames."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.frames: list[bytes] = []
        self.lost: list[Exception | None] = []
        self.before = Before()
        self.takes = 10**6
        self.protocol = Frames(self.before, limit, self._frame, self.lost.append)

    def feed(self, data: bytes) -> None:
        """As a transport does: into the room that there is."""
        while data:
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]

    def _frame(self, frame: bytes | bytearray) -> bool:
        self.frames.append(bytes(frame))
        return len(self.frames) < self.takes


class Before(asyncio.Protocol):
    """The protocol that has opened the connection."""

    def __init__(self) -> None:
        self.ends: list[Exception | None] = []

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@given(
    st.lists(st.binary(max_size=LIMIT), max_size=8),
    st.lists(st.integers(1, 300), min_size=1, max_size=40),
)
def test_frames_come_out_whole_and_in_order_however_they_are_cut(
    frames: list[bytes], cuts: list[int]
) -> None:
    ends = Ends()
    data = b"".join(map(framed, frames))
    number = 0
    while data:
        size = cuts[number % len(cuts)]
        ends.feed(data[:size])
        data = data[size:]
        number += 1
    assert ends.frames == frames
    assert ends.lost == []


@pytest.mark.parametrize("size", [2**16 - 5, 2**16 - 4, 2**16 - 3, 2**16, 200_000, 500_000])
@pytest.mark.parametrize("cut", [1000, 2**16 - 4, 2**16, 10**6])
def test_large_frames_come_out_as_they_were_between_small_ones(size: int, cut: int) -> None:
    ends = Ends(limit=10**6)
    large = bytes(range(256)) * (size // 256) + bytes(size % 256)
    frames = [b"small", large, b"", large[::-1], b"last"]
    data = b"".join(map(framed, frames))
    for begin in range(0, len(data), cut):
        ends.feed(data[begin : begin + cut])
    assert ends.frames == frames


def test_a_large_frame_stays_as_long_as_there_is_a_view_of_it_and_then_its_room_is_used() -> None:
    kept: list[memoryview] = []
    rooms: list[bytes | bytearray] = []

    def keep(frame: bytes | bytearray) -> bool:
        rooms.append(frame)
        kept.append(memoryview(frame)[10:])
        return True

    ends = Ends(limit=10**6)
    ends.protocol = Frames(ends.before, 10**6, keep, ends.lost.append)
    for letter, size in ((b"a", 100_000), (b"b", 90_000), (b"c", 90_000)):
        ends.feed(framed(letter * size))
    assert [bytes(each) for each in kept] == [b"a" * 99_990, b"b" * 89_990, b"c" * 89_990]
    kept.clear()
    ends.feed(framed(b"d" * 80_000))
    assert rooms[3] is rooms[2]
    assert kept == [b"d" * 79_990]


def test_a_frame_comes_out_as_soon_as_its_last_byte_is_there() -> None:
    ends = Ends()
    data = framed(b"abc")
    for end in range(len(data)):
        ends.feed(data[end : end + 1])
        assert ends.frames == ([b"abc"] if end == len(data) - 1 else [])


@pytest.mark.parametrize("size", [LIMIT + 1, -1, 2**31 - 1, -(2**31)])
def test_a_frame_that_declares_too_much_is_rejected_before_it_is_collected(size: int) -> None:
    ends = Ends()
    ends.feed(framed(b"first") + struct.pack(">i", size) + b"more")
    ends.feed(framed(b"never"))
    assert ends.frames == [b"first"]
    (error,) = ends.lost
    assert isinstance(error, FrameTooLargeError)
    assert f"{size} bytes" in str(error)


def test_who_wants_no_further_frames_gets_none() -> None:
    ends = Ends()
    ends.takes = 1
    ends.feed(framed(b"first") + framed(b"second"))
    ends.feed(framed(b"third"))
    assert ends.frames == [b"first"]


def test_both_the_reader_and_the_opener_get_the_connection_error() -> None:
    ends = Ends()
    error = ConnectionResetError()
    ends.feed(b"\0\0")
    assert not ends.protocol.eof_received()
    ends.protocol.connection_lost(error)
    assert ends.lost == [None, error]
    assert ends.before.ends == [error]
