"""A producer without a consumer."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.producing.producer import Producer
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig


class ProducerWithOwnConnections(AbstractAsyncContextManager[Producer]):
    """A producer with the connection options of ``config``; it connects at the first record.

    Records that are not acknowledged when the block is left fail. A class: contextlib's generators
    write into exceptions, and a user's class may forbid that.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        bootstrap = [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
        self._channels = Channels(config, EventLog())
        self._producer = Producer(config, self._channels, bootstrap, time.time)

    async def __aenter__(self) -> Producer:
        return self._producer

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._producer.aclose()
        finally:
            await self._channels.close()
