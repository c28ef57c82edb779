"""How many requests a member sends before its first Fetch, when it joins a group alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.cluster import Cluster

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupProtocol
    from asyncrevoke.client.protocol.messages import Request

_FIND = ["Metadata", "FindCoordinator", "Metadata"]
# The first JoinGroup is answered with the member id, which the second one has (KIP-394).
_CLASSIC = ["JoinGroup", "JoinGroup", "SyncGroup", "OffsetFetch", "ListOffsets"]
# The second heartbeat acknowledges the assignment, and nothing waits for its response.
_KIP_848 = ["ConsumerGroupHeartbeat", "OffsetFetch", "ConsumerGroupHeartbeat", "ListOffsets"]


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("classic", _FIND + _CLASSIC),
        ("consumer", _FIND + _KIP_848),
        # The fake Kafka offers KIP-848 to "consumer" only.
        ("auto", [*_FIND, "ConsumerGroupHeartbeat", *_CLASSIC]),
    ],
)
async def test_a_member_that_joins_alone_sends_no_more_requests_than_these(
    protocol: GroupProtocol, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    handle = Cluster.handle

    def noted(self: Cluster, broker: int, client: int, message: Request, reply: object) -> None:
        asked.append(type(message).__name__.removesuffix("Request"))
        handle(self, broker, client, message, reply)  # type: ignore[arg-type]

    monkeypatch.setattr(Cluster, "handle", noted)
    consumer = Consumer(
        "orders",
        bootstrap_servers="h:1",
        group_id="g",
        auto_offset_reset="earliest",
        group_protocol=protocol,
    )
    values: list[bytes] = []

    @consumer.handler("orders")
    async def keep(value: bytes) -> None:
        values.append(value)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
    assert values == [b"1"]
    # Metadata and FindCoordinator are requested beside each other.
    assert sorted(asked[: asked.index("Fetch")]) == sorted(expected)
