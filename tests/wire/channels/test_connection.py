"""Connections to a broker that misbehaves: each way to fail has its kind and its sentence."""

from __future__ import annotations

import asyncio
import struct

import pytest
from wire.channels.broker_channels import (
    SHORT,
    Start,
    detail,
    kind,
    never,
    responded_once,
    well,
)
from wire.fake_broker import FakeBroker, framed, heartbeat_response

from asyncrevoke.client.core.io.effects import Channel, FailureKind, Node, Replied
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.messages import ErrorCode


async def test_a_request_gets_its_response(start: Start) -> None:
    setup = await start(well)
    assert await setup.send() == Replied(1, messages.HeartbeatResponse(error=ErrorCode.none))


async def test_unknown_error_codes_are_logged_with_the_group_and_fields(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def respond(correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(heartbeat_response(correlation, error=-300))

    setup = await start(respond)
    response = messages.HeartbeatResponse(error=ErrorCode.unknown_server_error)
    assert await setup.send() == Replied(1, response)
    (line,) = [message for message in caplog.messages if message.startswith("unknown error codes")]
    node = f"broker 1 at 127.0.0.1:{setup.node.port}"
    assert line == (
        "unknown error codes in a response; handled as UNKNOWN_SERVER_ERROR "
        f"group=billing node={node!r} request=Heartbeat codes=-300"
    )


async def test_concurrent_requests_share_one_attempt_to_connect(start: Start) -> None:
    setup = await start(well)
    outcomes = await asyncio.gather(*(setup.send() for _ in range(10)))
    assert all(isinstance(outcome, Replied) for outcome in outcomes)
    assert setup.broker.connections == 1


async def test_each_channel_has_a_connection_of_its_own(start: Start) -> None:
    setup = await start(well)
    for channel in Channel:
        assert isinstance(await setup.send(channel=channel), Replied)
    assert setup.broker.connections == len(Channel)


async def test_a_port_without_a_listener_is_unreachable(start: Start) -> None:
    setup = await start(well)
    await setup.broker.stop()
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert f"no connection to broker 1 at 127.0.0.1:{setup.node.port}" in detail(outcome)


async def test_a_host_that_does_not_exist_is_unreachable(start: Start) -> None:
    setup = await start(well)
    outcome = await setup.send(node=Node(-1, "no-such-host.invalid", 9092))
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "no-such-host.invalid:9092" in detail(outcome)


async def test_a_server_that_never_greets_is_unreachable(start: Start) -> None:
    setup = await start(well, silent=True)
    outcome = await setup.send(timeout=SHORT)
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "within 0.1 s" in detail(outcome)


async def test_an_attempt_to_connect_ends_after_the_request_timeout(start: Start) -> None:
    setup = await start(well, silent=True, request_timeout=0.2, fetch_max_wait=0.1)
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.UNREACHABLE
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_garbage_instead_of_a_greeting_is_unreachable(start: Start) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(framed(b"HTTP/1.1 400 Bad Request"))
        writer.close()

    setup = await start(well)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await setup.send(node=Node(-1, "127.0.0.1", port))
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "127.0.0.1" in detail(outcome)


async def test_a_connection_closed_in_the_middle_of_a_frame_is_disconnected(start: Start) -> None:
    async def half(correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(heartbeat_response(correlation)[:-3])
        writer.close()

    outcome = await (await start(half)).send()
    assert kind(outcome) is FailureKind.DISCONNECTED
    assert "closed the connection before it responded to Heartbeat" in detail(outcome)
    assert "check security_protocol" in detail(outcome)


async def test_after_a_first_response_no_hint_at_the_configuration_is_given(start: Start) -> None:
    async def once(correlation: int, writer: asyncio.StreamWriter) -> None:
        if setup.broker.requests == 1:
            await well(correlation, writer)
        else:
            writer.close()

    setup = await start(once)
    assert isinstance(await setup.send(), Replied)
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.DISCONNECTED
    assert "security_protocol" not in detail(outcome)


async def test_a_broken_connection_is_replaced_by_the_next_request(start: Start) -> None:
    async def once(correlation: int, writer: asyncio.StreamWriter) -> None:
        if setup.broker.requests == 1:
            writer.transport.abort()
        else:
            await well(correlation, writer)

    setup = await start(once)
    assert kind(await setup.send()) is FailureKind.DISCONNECTED
    assert isinstance(await setup.send(), Replied)
    assert setup.broker.connections == 2


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0" * 5], ids=["empty", "short", "almost"])
async def test_a_response_that_cannot_be_decoded_is_malformed_and_drops_the_connection(
    start: Start, body: bytes
) -> None:
    async def garbage(correlation: int, writer: asyncio.StreamWriter) -> None:
        if setup.broker.requests == 1:
            writer.write(framed(struct.pack(">i", correlation) + body))
        else:
            await well(correlation, writer)

    setup = await start(garbage)
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.MALFORMED
    assert "are no HeartbeatResponse v3" in detail(outcome)
    await setup.broker.until(lambda: setup.broker.open == 0)
    assert isinstance(await setup.send(), Replied)


async def test_a_frame_too_short_for_its_header_is_malformed(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def short(_correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(b"\0"))

    outcome = await (await start(short)).send()
    assert kind(outcome) is FailureKind.MALFORMED
    assert caplog.records == []


async def test_a_wrong_correlation_id_is_malformed(start: Start) -> None:
    async def wrong(correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(heartbeat_response(correlation + 1))

    setup = await start(wrong)
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.MALFORMED
    assert "out of order" in detail(outcome)
    await setup.broker.until(lambda: setup.broker.open == 0)


@pytest.mark.parametrize("size", [2**31 - 1, 51 * 2**20 + 1, -1, -(2**31)])
async def test_a_frame_is_rejected_by_its_size_before_it_is_read(start: Start, size: int) -> None:
    async def huge(_correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", size))

    outcome = await (await start(huge)).send()
    assert kind(outcome) is FailureKind.MALFORMED
    assert f"a response of {size} bytes" in detail(outcome)
    assert "raise fetch_max_bytes" in detail(outcome)


async def test_a_response_that_never_comes_is_a_timeout_and_drops_the_connection(
    start: Start,
) -> None:
    setup = await responded_once(start)
    outcome = await setup.send(timeout=SHORT)
    assert kind(outcome) is FailureKind.TIMEOUT
    assert "did not respond to Heartbeat within 0.1 s" in detail(outcome)
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_a_timeout_disconnects_the_requests_that_wait_behind_it(start: Start) -> None:
    setup = await responded_once(start)
    first = asyncio.ensure_future(setup.send(timeout=SHORT))
    second = asyncio.ensure_future(setup.send())
    assert kind(await first) is FailureKind.TIMEOUT
    assert kind(await second) is FailureKind.DISCONNECTED


async def test_a_timeout_on_one_channel_leaves_the_others_alone(start: Start) -> None:
    parked: asyncio.StreamWriter | None = None

    async def first_is_parked(correlation: int, writer: asyncio.StreamWriter) -> None:
        nonlocal parked
        parked = parked or writer
        if writer is not parked:
            await well(correlation, writer)

    setup = await start(first_is_parked)
    join = asyncio.ensure_future(setup.send(channel=Channel.JOIN))
    await setup.broker.until(lambda: setup.broker.requests == 1)
    assert isinstance(await setup.send(channel=Channel.HEARTBEAT), Replied)
    assert not join.done()
    join.cancel()


async def test_versions_that_do_not_meet_are_unsupported_and_keep_the_connection(
    start: Start,
) -> None:
    setup = await start(well)
    setup.broker.versions[codec.api_key(messages.FetchRequest)] = (0, 3)
    fetch = messages.FetchRequest(partitions=(), max_wait=0.5, min_bytes=1, max_bytes=1)
    outcome = await setup.send(fetch)
    assert kind(outcome) is FailureKind.UNSUPPORTED
    assert "offers Fetch 0 to 3" in detail(outcome)
    assert isinstance(await setup.send(), Replied)
    assert setup.broker.connections == 1


async def test_a_request_that_cannot_be_written_is_unsupported_and_keeps_the_connection(
    start: Start,
) -> None:
    setup = await start(well)
    too_long = messages.FindCoordinatorRequest(group_id="g" * 40000)
    outcome = await setup.send(too_long)
    assert kind(outcome) is FailureKind.UNSUPPORTED
    assert "cannot be written" in detail(outcome)
    assert isinstance(await setup.send(), Replied)
    assert setup.broker.connections == 1


async def test_a_cancelled_request_drops_a_connection_without_other_requests(start: Start) -> None:
    setup = await start(never)
    request = asyncio.ensure_future(setup.send())
    await setup.broker.until(lambda: setup.broker.requests == 1)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_a_cancelled_request_does_not_disturb_another_one(start: Start) -> None:
    release = asyncio.Event()

    async def later(correlation: int, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await well(correlation, writer)

    setup = await start(later)
    first = asyncio.ensure_future(setup.send())
    second = asyncio.ensure_future(setup.send())
    await setup.broker.until(lambda: setup.broker.requests == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert isinstance(await second, Replied)
    assert setup.broker.connections == 1


async def test_cancelling_one_who_waits_for_a_connection_does_not_cancel_the_attempt(
    start: Start,
) -> None:
    setup = await start(well)
    first = asyncio.ensure_future(setup.send())
    second = asyncio.ensure_future(setup.send())
    await setup.broker.until(lambda: setup.broker.connections == 1)
    first.cancel()
    assert isinstance(await second, Replied)
    assert setup.broker.connections == 1


async def test_a_broker_that_moves_gets_a_new_connection_and_loses_the_old(start: Start) -> None:
    setup = await start(well)
    elsewhere = FakeBroker(well)
    moved = await elsewhere.start()
    assert isinstance(await setup.send(), Replied)
    assert isinstance(await setup.send(node=moved), Replied)
    assert elsewhere.connections == 1
    await setup.broker.until(lambda: setup.broker.open == 0)
    await elsewhere.stop()


async def test_an_unknown_error_code_is_logged_with_its_number(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def newer(correlation: int, writer: asyncio.StreamWriter) -> None:
        writer.write(heartbeat_response(correlation, error=9999))

    outcome = await (await start(newer)).send()
    assert outcome == Replied(1, messages.HeartbeatResponse(error=ErrorCode.unknown_server_error))
    (record,) = caplog.records
    assert "9999" in record.getMessage()
    assert record.name.startswith("asyncrevoke")


async def test_closing_fails_what_is_in_flight_and_every_later_request(start: Start) -> None:
    setup = await start(never)
    request = asyncio.ensure_future(setup.send())
    await setup.broker.until(lambda: setup.broker.requests == 1)
    await setup.channels.close()
    assert kind(await request) is FailureKind.DISCONNECTED
    outcome = await setup.send()
    assert kind(outcome) is FailureKind.UNREACHABLE
    assert "closed" in detail(outcome)
    await setup.broker.until(lambda: setup.broker.open == 0)


async def test_closing_ends_an_attempt_to_connect_as_a_failure_not_as_a_cancellation(
    start: Start,
) -> None:
    setup = await start(well, silent=True)
    request = asyncio.ensure_future(setup.send())
    await setup.broker.until(lambda: setup.broker.connections == 1)
    await setup.channels.close()
    assert kind(await request) is FailureKind.UNREACHABLE


async def test_closing_twice_is_fine(start: Start) -> None:
    setup = await start(well)
    await setup.send()
    await setup.channels.close()
    await setup.channels.close()


async def test_a_response_to_nothing_drops_the_connection(start: Start) -> None:
    async def twice(correlation: int, writer: asyncio.StreamWriter) -> None:
        await well(correlation, writer)
        await well(correlation, writer)

    setup = await start(twice)
    assert isinstance(await setup.send(), Replied)
    await setup.broker.until(lambda: setup.broker.open == 0)
    assert isinstance(await setup.send(), Replied)
    assert setup.broker.connections == 2


async def test_an_idle_connection_is_closed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrevoke.client.runtime.net.connection._IDLE_SECONDS", 2.0)
    setup = await start(well)
    assert isinstance(await setup.send(), Replied)
    await setup.broker.until(lambda: setup.broker.open == 0)
