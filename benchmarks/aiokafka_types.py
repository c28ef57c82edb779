"""The types of what is used of aiokafka, which has few of its own."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping
from typing import Protocol, Self

Partition = tuple[str, int]


class Received(Protocol):
    """A record."""

    partition: int
    offset: int
    value: bytes


class Reader(Protocol):
    """AIOKafkaConsumer."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    def subscribe(self, topics: list[str], *, listener: object) -> None: ...
    async def getmany(self, *, timeout_ms: int) -> Mapping[Partition, list[Received]]: ...
    async def commit(self, offsets: Mapping[Partition, int]) -> None: ...


class Sender(Protocol):
    """AIOKafkaProducer."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def send(self, topic: str, value: bytes, *, partition: int) -> Future[object]: ...


class Listener(Protocol):
    """ConsumerRebalanceListener."""

    async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None: ...
    async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None: ...
