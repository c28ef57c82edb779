"""What ``Consumer.probe`` and ``Consumer.health`` say on a real Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from asyncrevoke import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

DEADLINE = 30.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - of a broker
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_is_ready_when_its_missing_topic_is_created(
    kafka_broker: RunningBroker, kafka_topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    missing = f"{kafka_topic}-later"
    options = kafka_broker.client_options()
    handled: list[bytes] = []
    strict = Consumer(group_id=kafka_topic, group_protocol=protocol, **options)
    tolerant = Consumer(
        group_id=f"{kafka_topic}-2", allow_missing_topics=True, group_protocol=protocol, **options
    )

    @strict.handler(kafka_topic, missing)
    @tolerant.handler(kafka_topic, missing)
    async def handle(value: bytes) -> None:
        handled.append(value)

    async with strict, tolerant:
        await until(lambda: strict.health().assigned and tolerant.health().assigned)
        await until(lambda: strict.health().missing_topics and tolerant.health().missing_topics)
        assert strict.probe()[:3] == (True, False, (f"topics do not exist: {missing}",))
        assert tolerant.health().missing_topics == {missing}
        assert tolerant.probe()[:3] == (True, True, ())
        await asyncio.to_thread(kafka_broker.create_topic, missing, 1)
        await until(lambda: strict.probe().ready)
        assert strict.health().missing_topics == frozenset()
