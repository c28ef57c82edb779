"""The version of the subscription that each client sends with JoinGroup, and where it ends.

Version 1 begins with the owned partitions, version 2 with the generation, version 3 with the rack.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from mixed.group import PARTITIONS, Client
from mixed.neighbours.clients import ASSIGNORS, group_with, running_member

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(120),
    pytest.mark.kafka_topic(partitions=PARTITIONS),
]

# The version, and whether anything follows the user data.
EVERY = {
    "franz-go": (3, True),
    "sarama": (2, True),
    "kafka-go": (1, False),
    "platformatic": (1, False),
    "kafkajs": (0, False),
    "java": (3, True),
    "librdkafka": (3, True),
    "kafka-python": (0, False),
}
COOPERATIVE = EVERY | {"kafka-python": (1, True)}
CASES = [
    (client, assignor)
    for client, assignors in ASSIGNORS.items()
    for assignor in dict.fromkeys((assignors[0], assignors[-1]))
]


def version_and_end(subscription: bytes) -> tuple[int, bool]:
    version, topics = struct.unpack_from(">hi", subscription)
    position = 6
    for _ in range(topics):
        position += 2 + struct.unpack_from(">h", subscription, position)[0]
    user_data = struct.unpack_from(">i", subscription, position)[0]
    position += 4 + max(user_data, 0)
    return version, position < len(subscription)


@pytest.mark.parametrize(("client", "assignor"), CASES)
async def test_a_client_sends_this_version_of_the_subscription(
    tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str, client: Client, assignor: str
) -> None:
    group = group_with(client, tmp_path, kafka_broker, kafka_topic)
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
    await admin.start()
    try:
        async with running_member(group, client, assignor) as member, asyncio.timeout(60):
            while len(member.owned) < PARTITIONS:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.1)
            (response,) = await admin.describe_consumer_groups([group.name])
    finally:
        await admin.close()
    ((_, _, state, _, protocol, members, *_),) = response.groups
    assert (state, protocol) == ("Stable", assignor)
    ((_, _, _, subscription, _),) = (tuple(fields)[-5:] for fields in members)
    sent = COOPERATIVE if assignor == "cooperative-sticky" else EVERY
    assert version_and_end(subscription) == sent[client]
