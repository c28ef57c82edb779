"""Connections to brokers that close idle ones: after 240 s in Azure Event Hubs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.channels.broker_channels import well

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Replied
from asyncrevoke.testing.virtual_time import virtual_time

if TYPE_CHECKING:
    from wire.channels.broker_channels import Start

_EVENT_HUBS = 240.0
# The core adds up to a twentieth to the age of metadata.
_SPREAD = 1.05


async def test_an_idle_connection_is_closed_before_azure_event_hubs_closes_it(start: Start) -> None:
    setup = await start(well)
    passing = virtual_time()
    passing.enter()
    try:
        assert isinstance(await setup.send(), Replied)
        async with passing.call():
            await passing.pass_until(passing.clock.now + _EVENT_HUBS - 1)
        await setup.broker.until(lambda: setup.broker.open == 0)
        assert isinstance(await setup.send(), Replied)
        assert setup.broker.connections == 2
    finally:
        passing.leave()


async def test_metadata_are_requested_before_azure_event_hubs_closes_the_connection() -> None:
    assert ConsumerConfig().metadata_max_age * _SPREAD < _EVENT_HUBS
