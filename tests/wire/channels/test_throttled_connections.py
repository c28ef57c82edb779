"""Requests wait while a broker throttles their connection (KIP-219)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from wire.channels.broker_channels import BrokerChannels, Start, well
from wire.fake_broker import heartbeat_response

from asyncrevoke.client.core.io.effects import (
    BrokerThrottled,
    Channel,
    DropSilentConnections,
    Failed,
    FailureKind,
    Replied,
    Send,
)
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.runtime.net.handshake import AuthenticatedSession

if TYPE_CHECKING:
    from collections.abc import Awaitable

HEARTBEAT = messages.HeartbeatRequest(
    group_id="g", generation=1, member_id="m", group_instance_id=None
)
THROTTLE = 0.6
# Of silence, and of requests: both are over long before the throttle time is.
IMPATIENT = 0.1


class ThrottlingBroker:
    """Responds to the first request with a throttle time, and reads nothing before it is over."""

    def __init__(self, throttle: float = THROTTLE) -> None:
        self.throttle = throttle
        self.responded_at = 0.0
        self.next_at = 0.0

    async def respond(self, correlation: int, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time()
        if self.responded_at:
            self.next_at = self.next_at or now
            await well(correlation, writer)
            return
        self.responded_at = now
        milliseconds = int(self.throttle * 1000)
        writer.write(heartbeat_response(correlation, throttle_ms=milliseconds))
        await asyncio.sleep(self.throttle)


def send(setup: BrokerChannels, timeout: float = IMPATIENT) -> Awaitable[Replied | Failed]:
    request = Send(1, HEARTBEAT, setup.node, Channel.HEARTBEAT, timeout, IMPATIENT)
    return setup.channels.request(request)


async def test_a_request_waits_for_the_end_of_the_throttle_time(start: Start) -> None:
    broker = ThrottlingBroker()
    setup = await start(broker.respond)
    assert isinstance(await send(setup, timeout=5.0), Replied)  # it connects
    assert await setup.channels.report() == BrokerThrottled(setup.node, "Heartbeat", THROTTLE)
    assert isinstance(await send(setup), Replied)
    assert broker.next_at - broker.responded_at >= THROTTLE
    assert setup.broker.connections == 1


async def test_requests_are_sent_in_their_order_when_the_throttle_time_is_over(
    start: Start,
) -> None:
    setup = await start(ThrottlingBroker().respond)
    await send(setup, timeout=5.0)
    outcomes = await asyncio.gather(*(send(setup, timeout=5.0) for _ in range(5)))
    assert all(isinstance(outcome, Replied) for outcome in outcomes)
    assert setup.broker.connections == 1


async def test_a_request_that_was_sent_before_is_not_overdue_while_the_broker_does_not_read(
    start: Start,
) -> None:
    setup = await start(ThrottlingBroker().respond)
    outcomes = await asyncio.gather(send(setup), send(setup))
    assert all(isinstance(outcome, Replied) for outcome in outcomes)
    assert setup.broker.connections == 1
    await setup.channels.report()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            pytest.fail(f"reported {await setup.channels.report()}")


async def test_a_connection_whose_session_has_ended_is_replaced_and_stays_throttled(
    start: Start,
) -> None:
    broker = ThrottlingBroker()
    setup = await start(broker.respond)
    assert isinstance(await send(setup), Replied)
    (slot,) = setup.channels._slots.values()
    opened = await slot.opening
    opened.session = AuthenticatedSession(asyncio.get_running_loop().time() - 10, lifetime=1.0)
    assert isinstance(await send(setup, timeout=5.0), Replied)
    assert setup.broker.connections == 2
    assert broker.next_at - broker.responded_at >= THROTTLE


async def test_a_throttled_connection_is_not_dropped_as_silent(start: Start) -> None:
    broker = ThrottlingBroker()
    setup = await start(broker.respond)
    await send(setup)
    now = asyncio.get_running_loop().time()
    setup.channels.drop_silent(DropSilentConnections(setup.node, now + 1.0, now))
    assert isinstance(await send(setup), Replied)
    assert setup.broker.connections == 1


async def test_a_broker_that_does_not_respond_after_the_throttle_time_is_silent(
    start: Start,
) -> None:
    async def once(correlation: int, writer: asyncio.StreamWriter) -> None:
        if setup.broker.requests == 1:
            writer.write(heartbeat_response(correlation, throttle_ms=int(THROTTLE * 1000)))

    setup = await start(once)
    await send(setup)
    began = asyncio.get_running_loop().time()
    outcome = await send(setup, timeout=5.0)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.SILENT
    assert asyncio.get_running_loop().time() - began >= THROTTLE


async def test_a_cancelled_request_that_waits_is_not_sent_and_leaves_the_connection(
    start: Start,
) -> None:
    setup = await start(ThrottlingBroker().respond)
    await send(setup)
    waiting = asyncio.ensure_future(send(setup))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert isinstance(await send(setup), Replied)
    assert (setup.broker.connections, setup.broker.requests) == (1, 2)


async def test_closing_does_not_wait_for_a_throttle_time(start: Start) -> None:
    setup = await start(ThrottlingBroker(throttle=60.0).respond)
    await send(setup)
    waiting = asyncio.ensure_future(send(setup))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        await setup.channels.close()
        outcome = await waiting
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.DISCONNECTED
