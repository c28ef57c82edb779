"""A producer whose broker responds as a test says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import Producer
from asyncrevoke.client.producing.publishing import producer as producers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.hooks.event_log import EventLog
    from asyncrevoke.observing import Observer


@asynccontextmanager
async def entered(
    broker: ScriptedResultsBroker, *observers: Observer, **options: Any
) -> AsyncGenerator[Producer]:
    """An entered producer of this broker."""

    def channels(_config: ConsumerConfig, _log: EventLog) -> ScriptedResultsBroker:
        return broker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producers, "Channels", channels)
        producer = Producer(client_id="till", **options)
        for observer in observers:
            producer.observe(observer)
        async with producer:
            yield producer


def values(broker: ScriptedResultsBroker) -> list[int]:
    """The values that the broker has written."""
    return [int(value or b"-1") for _, _, value in broker.written]
