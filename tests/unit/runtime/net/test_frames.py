"""Frames as they come from a socket: in whatever pieces, and no larger than they may be."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.protocol.receive_buffers import ReceiveBuffer, ReceiveBuffers, buffer_of
from asyncrevoke.runtime.net.frames import Frames, FrameTooLargeError

LIMIT = 1000


class Ends:
    """What comes out of frames."""

    def __init__(self, limit: int = LIMIT, most_kept: int = 2**20) -> None:
        self.frames: list[bytes | memoryview] = []
        self.lost: list[Exception | None] = []
        self.before = Before()
        self.takes = 10**6
        self.protocol = Frames(self.before, limit, ReceiveBuffers(most_kept), self)

    def feed(self, data: bytes) -> None:
        """As a transport does: into the room that there is."""
        while data:
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]

    def frame_received(self, frame: bytes | memoryview) -> bool:
        self.frames.append(frame)
        return len(self.frames) < self.takes

    def frames_ended(self, error: Exception | None) -> None:
        self.lost.append(error)


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


def buffers_of(ends: Ends) -> list[ReceiveBuffer | None]:
    return [buffer_of(frame) for frame in ends.frames]


def test_a_large_frame_stays_in_its_buffer_while_there_is_a_view_of_it() -> None:
    ends = Ends(limit=10**6)
    for letter, size in ((b"a", 100_000), (b"b", 90_000), (b"c", 90_000)):
        ends.feed(framed(letter * size))
    assert ends.frames == [b"a" * 100_000, b"b" * 90_000, b"c" * 90_000]
    first, second, third = buffers_of(ends)
    assert len({id(first), id(second), id(third)}) == 3
    part = memoryview(ends.frames[1])[10:20]
    ends.frames.clear()
    ends.feed(framed(b"d" * 80_000) + framed(b"e" * 80_000) + framed(b"f" * 80_000))
    assert buffers_of(ends)[:2] == [first, third]
    assert all(buffer is not second for buffer in buffers_of(ends))
    assert part == b"b" * 10


def test_frames_without_views_are_all_received_into_one_buffer() -> None:
    ends = Ends(limit=10**6)
    buffers: set[int] = set()
    for size in (200_000, 70_000, 262_144, 100_000):
        ends.feed(framed(bytes(size)))
        (buffer,) = buffers_of(ends)
        buffers.add(id(buffer))
        ends.frames.clear()
    assert len(buffers) == 1


def test_a_buffer_is_not_used_for_a_frame_that_is_much_smaller() -> None:
    ends = Ends(limit=10**8, most_kept=10**8)
    ends.feed(framed(bytes(10**7)))
    ends.frames.clear()
    ends.feed(framed(bytes(10**6)))
    assert len(buffers_of(ends)[0] or b"") < 2 * 10**6


def test_no_more_bytes_of_buffers_are_kept_than_allowed() -> None:
    tracemalloc.start()
    try:
        ends = Ends(limit=10**8, most_kept=3 * 10**6)
        for _ in range(4):
            ends.feed(framed(bytes(2 * 10**6)))
        assert tracemalloc.get_traced_memory()[0] > 8 * 10**6
        ends.frames.clear()
        assert tracemalloc.get_traced_memory()[0] < 3.5 * 10**6
    finally:
        tracemalloc.stop()


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
