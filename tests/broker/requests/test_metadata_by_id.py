"""A real broker describes topics by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from broker.requests.wire_client import WireClient

pytestmark = pytest.mark.broker

UNKNOWN = b"\1" * 16


async def test_a_topic_is_described_by_its_id_and_an_unknown_id_has_an_error(
    client: WireClient, kafka_topic: str
) -> None:
    by_name = messages.MetadataRequest(topics=(kafka_topic,))
    (named,) = (await client.ask(by_name, messages.MetadataResponse)).topics
    by_id = messages.MetadataRequest(topics=(), topic_ids=(named.topic_id, UNKNOWN))
    topics = (await client.ask(by_id, messages.MetadataResponse)).topics
    found = {topic.topic_id: topic for topic in topics}
    assert found[named.topic_id].name == kafka_topic
    assert len(found[named.topic_id].partitions) == 4
    assert (found[UNKNOWN].error, found[UNKNOWN].name) == (ErrorCode.unknown_topic_id, "")
