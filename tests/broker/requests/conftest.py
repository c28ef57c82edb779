"""A client that sends single requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.requests.wire_client import WireClient, node_at

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.broker import RunningBroker


@pytest.fixture
async def client(kafka_broker: RunningBroker) -> AsyncIterator[WireClient]:
    servers = kafka_broker.bootstrap_servers
    channels = Channels(ConsumerConfig(bootstrap_servers=servers))
    yield WireClient(channels, node_at(servers))
    await channels.close()
