# ruff: noqa: D102 - documented by aiokafka
"""The types of what is used of aiokafka, which has few of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Mapping

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


class Batch(Protocol):
    """BatchBuilder."""

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes) -> object: ...
    def close(self) -> None: ...


class Sender(Protocol):
    """AIOKafkaProducer."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> Future[object]: ...
    def create_batch(self) -> Batch: ...
    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> Future[object]: ...


class Committed(Protocol):
    """What a group has committed of a partition."""

    offset: int


class Groups(Protocol):
    """AIOKafkaAdminClient."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def list_consumer_group_offsets(self, group_id: str) -> Mapping[Partition, Committed]: ...
