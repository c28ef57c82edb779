"""What faults change of topics and of access, by librdkafka's administration client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition as Position
from confluent_kafka import admin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.model import TopicPartition

# The principal of all members.
USER = "alice"
_PATIENCE = 20.0
# Half typed.
_admin: Any = admin
_RESOURCES: dict[str, Any] = {
    "topic": _admin.ResourceType.TOPIC,
    "group": _admin.ResourceType.GROUP,
}


class Administration:
    """Requests to the brokers, past the proxies."""

    def __init__(self, bootstrap: str) -> None:
        self._client: Any = _admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Let each log begin at this offset, as retention does."""
        positions = [Position(tp.topic, tp.partition, offset) for tp, offset in before.items()]
        await self._all(self._client.delete_records(positions))

    async def withdraw(self, resource: str, name: str) -> None:
        """Take all rights to a topic or a group away from the members."""
        rules = _admin.AclBindingFilter(
            _RESOURCES[resource],
            name,
            _admin.ResourcePatternType.LITERAL,
            f"User:{USER}",
            None,
            _admin.AclOperation.ANY,
            _admin.AclPermissionType.ANY,
        )
        await self._all(self._client.delete_acls([rules]))

    async def _all(self, futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            await asyncio.to_thread(future.result, _PATIENCE)
