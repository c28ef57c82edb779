"""Requests that begin at once, over a connection that is open already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from wire.channels.broker_channels import (
    HEARTBEAT,
    LONG,
    SHORT,
    BrokerChannels,
    Start,
    kind,
    responded_once,
    well,
)

from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Replied, Send
from asyncrevoke.client.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable


def _begun(setup: BrokerChannels, outcomes: list[Replied | Failed], **options: Any) -> bool:
    send = Send(1, HEARTBEAT, setup.node, Channel.HEARTBEAT, LONG)
    send = msgspec.structs.replace(send, **options)
    return setup.channels.begin(send, outcomes.append)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the outcome is a list
            await asyncio.sleep(0.001)


async def test_nothing_begins_before_there_is_a_connection(start: Start) -> None:
    setup = await start(well)
    outcomes: list[Replied | Failed] = []
    assert not _begun(setup, outcomes)
    assert isinstance(await setup.send(), Replied)
    assert not _begun(setup, outcomes, channel=Channel.COMMIT)
    assert not _begun(setup, outcomes, node=setup.node._replace(port=1))
    assert outcomes == []


async def test_over_an_open_connection_a_request_begins_at_once_and_gets_its_response(
    start: Start,
) -> None:
    setup = await start(well)
    await setup.send()
    tasks = len(asyncio.all_tasks())
    outcomes: list[Replied | Failed] = []
    assert _begun(setup, outcomes, request_id=7)
    assert _begun(setup, outcomes, request_id=8)
    assert len(asyncio.all_tasks()) == tasks
    await _until(lambda: len(outcomes) == 2)
    assert [outcome.request_id for outcome in outcomes] == [7, 8]
    assert all(isinstance(outcome, Replied) for outcome in outcomes)


async def test_what_has_begun_fails_at_the_end_of_its_time_and_others_with_it(
    start: Start,
) -> None:
    setup = await responded_once(start)
    outcomes: list[Replied | Failed] = []
    assert _begun(setup, outcomes)
    assert _begun(setup, outcomes, timeout=SHORT)
    assert outcomes == []
    await _until(lambda: len(outcomes) == 2)
    assert {kind(outcome) for outcome in outcomes} == {
        FailureKind.TIMEOUT,
        FailureKind.DISCONNECTED,
    }
    assert not _begun(setup, outcomes)


async def test_what_cannot_be_written_fails_later_and_keeps_the_connection(start: Start) -> None:
    setup = await start(well)
    await setup.send()
    outcomes: list[Replied | Failed] = []
    too_long = messages.HeartbeatRequest(
        group_id="g" * 40000, generation=1, member_id="m", group_instance_id=None
    )
    assert _begun(setup, outcomes, message=too_long)
    assert outcomes == []
    await _until(lambda: outcomes)
    assert kind(outcomes[0]) is FailureKind.UNSUPPORTED
    assert isinstance(await setup.send(), Replied)
    assert setup.broker.connections == 1


async def test_what_has_begun_fails_when_its_channel_is_dropped_and_not_before_that_returns(
    start: Start,
) -> None:
    setup = await responded_once(start)
    outcomes: list[Replied | Failed] = []
    assert _begun(setup, outcomes)
    setup.channels.reset(setup.node, Channel.HEARTBEAT)
    assert outcomes == []
    await _until(lambda: outcomes)
    assert kind(outcomes[0]) is FailureKind.DISCONNECTED
