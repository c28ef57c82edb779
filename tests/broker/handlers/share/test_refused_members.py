"""Members of share groups that lack rights, or whose group id has a group of another type: each is
told by one sentence. And levels of the feature share.version."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Literal

import pytest
from broker.handlers.share.share_topics import queue, until
from broker.kafka_release import kafka_release

from asyncrevoke import Consumer, GroupAuthorizationError, TopicAuthorizationError
from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.client.errors import InconsistentGroupError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

Right = Literal["nothing", "describe", "read"]


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True)
    with KafkaBroker(security=security) as broker:
        yield broker


async def run_as_alice(broker: KafkaBroker, group: Right, topic: Right) -> None:
    """A member of a new group on a new topic, with these rights."""
    name = f"guarded-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1)
    if group != "nothing":
        broker.allow("alice", "group", name, [group])
    if topic != "nothing":
        broker.allow("alice", "topic", name, [topic])
    consumer = Consumer(**broker.client_options(), group_id=name, group_type="share")

    @consumer.handler(name)
    async def handle(_value: bytes) -> None: ...

    async with asyncio.timeout(20):
        await consumer.run()


@pytest.mark.parametrize("right", ["describe", pytest.param("nothing", marks=pytest.mark.variant)])
async def test_a_group_without_read_is_named(guarded_broker: KafkaBroker, right: Right) -> None:
    sentence = r"not authorized to use (share )?group 'guarded-\w+': grant READ on"
    with pytest.raises(GroupAuthorizationError, match=sentence):
        await run_as_alice(guarded_broker, group=right, topic="read")


@pytest.mark.parametrize("right", ["nothing", "describe"])
async def test_a_topic_without_read_is_named(guarded_broker: KafkaBroker, right: Right) -> None:
    sentence = r"not authorized to read topic 'guarded-\w+': grant DESCRIBE and READ on it"
    with pytest.raises(TopicAuthorizationError, match=sentence):
        await run_as_alice(guarded_broker, group="read", topic=right)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_group_cannot_have_the_id_of_a_share_group(
    kafka_broker: RunningBroker, protocol: Literal["classic", "consumer"]
) -> None:
    name = f"typed-{uuid.uuid4().hex[:8]}"
    servers = kafka_broker.bootstrap_servers
    await queue(kafka_broker, name, 0)
    share = Consumer(bootstrap_servers=servers, group_id=name, group_type="share")

    @share.handler(name)
    async def handle(_value: bytes) -> None: ...

    async with share:
        await until(lambda: share.probe().ready)
    # Also while it has no members.
    consumer = Consumer(name, bootstrap_servers=servers, group_id=name, group_protocol=protocol)
    async with asyncio.timeout(20), consumer:
        with pytest.raises(InconsistentGroupError, match="or is a share group"):
            await anext(consumer)


@pytest.mark.variant
@pytest.mark.parametrize(
    "level",
    [
        1,
        pytest.param(
            2, marks=pytest.mark.skipif(kafka_release() < (4, 4), reason="needs Apache Kafka 4.4")
        ),
    ],
)
async def test_each_level_of_share_groups_delivers_records(level: int) -> None:
    with KafkaBroker(features={"share.version": level}) as broker:
        await queue(broker, "levels", 20, partitions=2)
        values = set[bytes]()
        consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="levels", group_type="share"
        )

        @consumer.handler("levels")
        async def handle(value: bytes) -> None:
            values.add(value)

        async with consumer:
            await until(lambda: len(values) == 20)
            await until(lambda: consumer.health().in_flight == 0)
