"""Groups whose coordinator assigns (KIP-848), of this library and of clients in Go and Node."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from mixed.group import PARTITIONS, Client, MixedGroup
from mixed.neighbours.programs import program
from mixed.test_consumer_protocol import PROPERTIES

from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(quick=True, properties=PROPERTIES) as broker:
        yield broker


@pytest.mark.parametrize("client", ["franz-go", "platformatic"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "the other first"])
async def test_members_of_both_clients_share_a_group_and_consume_each_record_once(
    tmp_path: Path, broker: KafkaBroker, client: Client, *, ours_first: bool
) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, PARTITIONS)
    group = MixedGroup(tmp_path, broker.bootstrap_servers, topic, {client: program(client)})
    order: tuple[Client, ...] = ("ours", client) if ours_first else (client, "ours")
    async with group:
        assert await group.join_and_leave(order * 2) == ["uniform"] * 4
        await group.ends_with_each_record_consumed_once()
