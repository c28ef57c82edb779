"""A member of a share group: librdkafka's share consumer, in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import AcknowledgeType, ShareConsumer

if TYPE_CHECKING:
    from types import TracebackType

# Seconds. Its first fetch is sent about 5 s after it has joined.
DEADLINE = 45.0


class ShareMember:
    """Joins when it is entered, and leaves afterwards."""

    def __init__(self, servers: str, group: str, topic: str, client_id: str) -> None:
        self._consumer: Any = ShareConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": client_id,
                "share.acknowledgement.mode": "explicit",
            }
        )
        self._topic = topic

    async def __aenter__(self) -> Self:
        self._consumer.subscribe([self._topic])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._consumer.close)

    async def receive(self, accept: int, release: int = 0) -> None:
        """Receive as many records in all; accept the first ones, and release the others."""
        received = 0
        async with asyncio.timeout(DEADLINE):
            while received < accept + release:
                for message in await asyncio.to_thread(self._consumer.poll, 0.2):
                    assert message.error() is None, message.error()
                    received += 1
                    kind = AcknowledgeType.ACCEPT if received <= accept else AcknowledgeType.RELEASE
                    self._consumer.acknowledge(message, kind)
        await asyncio.to_thread(self._consumer.commit_sync, DEADLINE)
