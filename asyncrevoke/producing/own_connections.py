"""A producer without a consumer."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Node
from asyncrevoke.producing.producer import Producer
from asyncrevoke.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.config import ConsumerConfig


@asynccontextmanager
async def producer_with_own_connections(config: ConsumerConfig) -> AsyncGenerator[Producer]:
    """A producer with the connection options of ``config``; it connects at the first record.

    Records that are not acknowledged when the block is left fail.
    """
    channels = Channels(config)
    bootstrap = [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
    producer = Producer(config, channels, bootstrap, time.time)
    try:
        yield producer
    finally:
        try:
            await producer.aclose()
        finally:
            await channels.close()
