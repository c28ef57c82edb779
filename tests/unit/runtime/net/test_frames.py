"""Frames as they come from a socket: in whatever pieces, and no larger than they may be."""

from __future__ import annotations

import asyncio
import socket
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer, ReceiveBuffers, buffer_of
from asyncrevoke.client.runtime.net.frames import Frames, FrameTooLargeError

LIMIT = 1000


class Ends:
    """What comes out of frames."""

    def __init__(
        self, limit: int = LIMIT, most_kept: int = 2**20, *, encrypted: bool = False
    ) -> None:
        self.frames: list[bytes | memoryview] = []
        self.lost: list[Exception | None] = []
        self.takes = 10**6
        self.socket = Socket()
        self.transport = Transport(self.socket, encrypted=encrypted)
        self.protocol = Frames(limit, ReceiveBuffers(most_kept), self)
        self.protocol.connection_made(self.transport)

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


class Socket:
    """Has the low-water mark of a socket, and how often it was set."""

    def __init__(self) -> None:
        self.mark = 1
        self.calls = 0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.mark = value
        self.calls += 1


class Transport(asyncio.BaseTransport):
    """An open transport with a socket."""

    def __init__(self, sock: Socket, *, encrypted: bool) -> None:
        super().__init__({"socket": sock, "sslcontext": object() if encrypted else None})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


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


def test_buffers_without_views_are_freed_by_the_next_frame_but_for_the_bytes_to_keep() -> None:
    tracemalloc.start()
    try:
        ends = Ends(limit=10**8, most_kept=3 * 10**6)
        for _ in range(4):
            ends.feed(framed(bytes(2 * 10**6)))
        ends.feed(framed(b"small"))
        assert tracemalloc.get_traced_memory()[0] > 8 * 10**6
        last = buffers_of(ends)[3]
        ends.frames.clear()
        ends.feed(framed(b"small"))
        assert tracemalloc.get_traced_memory()[0] < 3.5 * 10**6
        ends.feed(framed(bytes(2 * 10**6)))
        assert buffers_of(ends)[1] is last
    finally:
        tracemalloc.stop()


def test_a_buffer_is_used_again_while_others_have_views_of_more_bytes_than_are_kept() -> None:
    ends = Ends(limit=10**8, most_kept=3 * 10**6)
    for _ in range(6):
        ends.feed(framed(bytes(2 * 10**6)))
    for number in range(6):
        buffer = buffer_of(ends.frames[0])
        del ends.frames[0]
        ends.feed(framed(bytes([number]) * (2 * 10**6)))
        assert buffer_of(ends.frames[-1]) is buffer


def test_the_oldest_buffers_with_views_are_not_used_again_if_there_are_many() -> None:
    ends = Ends(limit=10**6, most_kept=10**8)
    for _ in range(65):
        ends.feed(framed(bytes(100_000)))
    first, second, *_ = buffers_of(ends)
    ends.frames.clear()
    ends.feed(framed(bytes(100_000)))
    assert buffers_of(ends) == [second]
    assert first is not second


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


def test_the_receiver_gets_the_end_and_the_error_of_the_connection() -> None:
    ends = Ends()
    error = ConnectionResetError()
    ends.feed(b"\0\0")
    assert not ends.protocol.eof_received()
    ends.protocol.connection_lost(error)
    assert ends.lost == [None, error]
    assert ends.protocol.closed.is_set()


MIB = 2**20


@pytest.mark.parametrize("size", [2**16, 3 * 2**16, 700_001, MIB])
@pytest.mark.parametrize("cut", [10_000, 33_000, 2**16, 150_001, MIB])
def test_the_socket_never_waits_for_more_bytes_than_the_frame_lacks(size: int, cut: int) -> None:
    ends = Ends(limit=MIB)
    data = framed(bytes(size)) + framed(b"small") + framed(bytes(size // 2))
    for begin in range(0, len(data), cut):
        ends.feed(data[begin : begin + cut])
        assert 1 <= ends.socket.mark <= len(ends.protocol.get_buffer(-1))
    assert [len(frame) for frame in ends.frames] == [size, 5, size // 2]
    assert ends.socket.mark == 1


def test_the_socket_waits_for_many_bytes_while_a_large_frame_is_received_fast() -> None:
    ends = Ends(limit=2 * MIB)
    data = framed(bytes(MIB))
    ends.feed(data[:65536])
    assert ends.socket.mark == 1
    ends.feed(data[65536:131072])
    assert ends.socket.mark == 128 * 1024
    ends.feed(data[131072:-1000])
    assert ends.socket.mark == 1000
    ends.feed(data[-1000:])
    assert (ends.socket.mark, ends.socket.calls) == (1, 3)


@pytest.mark.parametrize("piece", [1448, 32 * 1024 - 1])
def test_the_socket_waits_for_no_more_than_a_byte_on_a_slow_link(piece: int) -> None:
    ends = Ends(limit=MIB)
    data = framed(bytes(MIB))
    for begin in range(0, len(data), piece):
        ends.feed(data[begin : begin + piece])
    assert len(ends.frames) == 1
    assert ends.socket.calls == 0


def test_with_tls_the_socket_waits_for_no_more_than_a_byte() -> None:
    ends = Ends(limit=MIB, encrypted=True)
    ends.feed(framed(bytes(MIB)))
    assert len(ends.frames) == 1
    assert ends.socket.calls == 0


def test_queued_bytes_are_read_on_request_though_a_large_frame_lacks_more() -> None:
    ends = Ends(limit=MIB)
    ends.feed(framed(bytes(MIB))[:200_000])
    assert ends.socket.mark > 1
    ends.protocol.read_queued()
    assert ends.socket.mark == 1


def test_a_closed_socket_is_left_alone() -> None:
    ends = Ends(limit=MIB)
    ends.feed(framed(bytes(MIB))[:200_000])
    calls = ends.socket.calls
    ends.transport.closing = True
    ends.protocol.read_queued()
    assert ends.socket.calls == calls
