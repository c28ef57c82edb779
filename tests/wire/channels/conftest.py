"""Starts fake brokers, and closes them and their channels after the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from wire.channels.broker_channels import (
    BrokerChannels,
    Start,
)
from wire.fake_broker import FakeBroker, Respond

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[BrokerChannels] = []

    async def start(respond: Respond, *, silent: bool = False, **options: object) -> BrokerChannels:
        broker = FakeBroker(respond, silent=silent)
        node = await broker.start()
        config = ConsumerConfig.from_options(bootstrap_servers="127.0.0.1:1", **options)
        running.append(BrokerChannels(broker, node, Channels(config, EventLog(group="billing"))))
        return running[-1]

    yield start
    for setup in running:
        await setup.channels.close()
        await setup.broker.stop()
