"""Consumers that bill orders."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from asyncrevoke import (
    Consumer,
    TopicPartition,
)


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


@dataclass
class Billed:
    """A consumer that bills orders, each of which takes ``seconds``."""

    consumer: Consumer
    orders: list[int]


def billing(seconds: float = 0.0) -> Billed:
    consumer = Consumer(group_id="billing", concurrency=8, commit_interval=1.0)
    orders: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        await asyncio.sleep(seconds)
        orders.append(order["id"])

    return Billed(consumer, orders)
