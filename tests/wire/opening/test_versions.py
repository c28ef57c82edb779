"""The versions that servers offer are asked for in a way that each of them answers."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest
from wire.fake_broker import API_VERSIONS, api_versions_response, framed
from wire.opening.opening_server import (
    LONG,
    PLAIN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Opening,
    Server,
    authenticated,
    connected,
)

import asyncrevoke
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.runtime.net.handshake import AnsweredVersions

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE_FETCH = 78
UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
HEARTBEAT = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)


def closed(_: int, __: int, ___: int, ____: bytes) -> bytes | None:
    return None


def no_answer(_: int, __: int, ___: int, ____: bytes) -> bytes:
    return b""


def http(_: int, __: int, ___: int, ____: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


async def test_one_request_with_the_name_of_the_client_opens_a_connection(
    server: Server, opening: Opening
) -> None:
    opened = await opening(client_id="c")
    assert opened.versions == server.versions
    assert server.asked == [(1, API_VERSIONS, 3)]
    version = asyncrevoke.__version__.encode()
    name = b"\x0casyncrevoke" + bytes((len(version) + 1,)) + version + b"\0"
    assert server.received[0].endswith(b"\0\1c\0" + name)


async def test_an_inverted_range_of_a_request_that_is_never_sent_does_not_matter(
    server: Server, opening: Opening
) -> None:
    server.versions[SHARE_FETCH] = (1, 0)
    opened = await opening()
    assert SHARE_FETCH not in opened.versions
    assert opened.versions == {
        key: limits for key, limits in server.versions.items() if key != SHARE_FETCH
    }


async def test_a_broker_that_lacks_the_version_is_asked_in_its_own_on_the_same_connection(
    server: Server, opening: Opening
) -> None:
    def older(_: int, version: int, correlation: int, __: bytes) -> bytes:
        if version > 1:
            own = {API_VERSIONS: (0, 1)}
            return api_versions_response(correlation, own, error=UNSUPPORTED_VERSION)
        return api_versions_response(correlation, server.versions, version)

    server.on[API_VERSIONS] = older
    assert (await opening()).versions == server.versions
    assert (await opening()).versions == server.versions
    # The second connection needs no second request.
    assert server.versions_asked == [(1, 3), (1, 1), (2, 1)]


@pytest.mark.parametrize("own", [{}, {3: (0, 1)}, {API_VERSIONS: (0, 0)}])
async def test_a_broker_that_names_no_version_of_its_own_is_asked_in_version_0(
    server: Server, opening: Opening, own: dict[int, tuple[int, int]]
) -> None:
    def oldest(_: int, version: int, correlation: int, __: bytes) -> bytes:
        if version:
            return api_versions_response(correlation, own, error=UNSUPPORTED_VERSION)
        return api_versions_response(correlation, server.versions)

    server.on[API_VERSIONS] = oldest
    assert (await opening()).versions == server.versions
    assert server.versions_asked == [(1, 3), (1, 0)]


async def test_a_broker_that_rejects_the_request_is_asked_in_version_0(
    server: Server, opening: Opening
) -> None:
    def rejecting(_: int, version: int, correlation: int, __: bytes) -> bytes:
        error = INVALID_REQUEST if version else 0
        return api_versions_response(correlation, server.versions, version, error=error)

    server.on[API_VERSIONS] = rejecting
    assert (await opening()).versions == server.versions
    assert server.versions_asked == [(1, 3), (1, 0)]


async def test_a_broker_that_has_only_newer_versions_is_named(
    server: Server, opening: Opening
) -> None:
    server.on[API_VERSIONS] = lambda _, __, correlation, ___: api_versions_response(
        correlation, {API_VERSIONS: (6, 7)}, error=UNSUPPORTED_VERSION
    )
    with pytest.raises(Exception, match=r"versions 6 to 7 of ApiVersions.*upgrade asyncrevoke"):
        await opening()
    assert server.versions_asked == [(1, 3)]


def closes(_correlation: int) -> None:
    return None


def an_old_layout(correlation: int) -> bytes:
    return api_versions_response(correlation, {3: (0, 12)})


def another_response(correlation: int) -> bytes:
    return api_versions_response(correlation + 1, {3: (0, 12)}, 3)


def nothing_but_a_header(correlation: int) -> bytes:
    return framed(struct.pack(">i", correlation))


@pytest.mark.parametrize("answer", [closes, an_old_layout, another_response, nothing_but_a_header])
async def test_a_server_that_answers_otherwise_is_asked_in_version_0_on_a_new_connection(
    server: Server, opening: Opening, answer: Callable[[int], bytes | None]
) -> None:
    def odd(_: int, version: int, correlation: int, __: bytes) -> bytes | None:
        if version:
            return answer(correlation)
        return api_versions_response(correlation, server.versions)

    server.on[API_VERSIONS] = odd
    assert (await opening()).versions == server.versions
    assert (await opening()).versions == server.versions
    assert server.versions_asked == [(1, 3), (2, 0), (3, 0)]


async def test_a_connection_that_is_reset_is_opened_again_with_version_0(
    server: Server, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = server._one

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.connections == 1:
            await reader.read(1)  # what is left unread makes the kernel send a reset
            writer.transport.abort()
            raise ConnectionResetError
        await one(reader, writer)

    monkeypatch.setattr(server, "_one", reset)
    assert (await opening()).versions == server.versions
    assert server.versions_asked == [(2, 0)]


async def test_a_server_that_hangs_up_gets_one_connection_for_each_attempt_but_the_first(
    server: Server, opening: Opening
) -> None:
    answer, server.on[API_VERSIONS] = server.on[API_VERSIONS], closed
    for _ in range(4):
        with pytest.raises(Exception, match="it closed the connection"):
            await opening()
    assert server.versions_asked == [(1, 3), (2, 0), (3, 3), (4, 0), (5, 3)]
    server.on[API_VERSIONS] = answer
    for _ in range(2):
        assert (await opening()).versions == server.versions
    assert server.versions_asked[5:] == [(6, 0), (7, 0)]


async def test_an_error_in_version_0_is_named(server: Server, opening: Opening) -> None:
    server.on[API_VERSIONS] = lambda _, version, correlation, __: api_versions_response(
        correlation, {}, version, error=INVALID_REQUEST
    )
    with pytest.raises(Exception, match="it responds to ApiVersions with INVALID_REQUEST"):
        await opening()


async def test_a_frame_beyond_the_limit_is_not_asked_for_again(
    server: Server, opening: Opening
) -> None:
    server.on[API_VERSIONS] = http
    with pytest.raises(Exception, match="while the connection was opened exceeds the limit"):
        await opening()
    assert server.connections == 1


async def test_the_first_request_waits_for_the_throttle_time_of_the_versions(
    server: Server, opening: Opening
) -> None:
    server.on[API_VERSIONS] = lambda _, version, correlation, __: api_versions_response(
        correlation, server.versions, version, throttle_ms=400
    )
    times: list[float] = []
    loop = asyncio.get_running_loop()

    def authenticate(_: int, __: int, correlation: int, ___: bytes) -> bytes:
        times.append(loop.time())
        return authenticated(correlation)

    server.on[SASL_AUTHENTICATE] = authenticate
    begun_at = loop.time()
    opened = await opening(**PLAIN)
    assert times[0] - begun_at >= 0.4
    assert opened.throttled_until - begun_at >= 0.4
    assert server._server is not None
    host, port = server._server.sockets[0].getsockname()
    node = Node(1, host, port)
    begun_at = loop.time()
    connection = await connected(node)
    response = await connection.request(HEARTBEAT, within=LONG)
    assert response == messages.HeartbeatResponse(error=ErrorCode.none)
    assert loop.time() - begun_at >= 0.4
    await connection.close()


def test_addresses_of_which_a_version_is_known_do_not_grow_without_a_limit() -> None:
    answered = AnsweredVersions()
    for number in range(3_000):
        answered.answered((f"10.0.0.{number}", 9092), 0)
        answered.answered((f"10.0.0.{number}", 9093), 3, 5)
        answered.not_answered((f"10.0.0.{number}", 9094), 0)
        known = len(answered._versions) + len(answered._without_answer) + len(answered._comparing)
        assert known <= 1_003
    assert answered.to_ask(("10.0.0.2999", 9092), names_broker=True) == 0
    assert answered.to_ask(("10.0.0.2999", 9093)) == 3
    assert answered.to_ask(("10.0.0.2999", 9093), names_broker=True) == 5


@pytest.mark.parametrize("silent", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
async def test_cancelling_closes_the_socket_in_each_step(
    server: Server, opening: Opening, silent: int
) -> None:
    server.on[silent] = no_answer
    task = asyncio.ensure_future(opening(**PLAIN))
    await server.until(lambda: bool(server.asked) and server.asked[-1][1] == silent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.until(lambda: server.open == 0)
