"""Commits that a real broker rejects: access to the topic is withdrawn, and given back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

import pytest
from broker.records.numbered_records import DEADLINE, until
from broker.records.test_bad_input import GuardedTopic
from confluent_kafka import admin

from asyncrevoke import NoOffsetError, TopicAuthorizationError, TopicPartition
from asyncrevoke.broker import KafkaBroker, Security

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

# Half typed.
_admin: Any = admin
PROTOCOLS: list[Literal["classic", "consumer"]] = ["classic", "consumer"]
UNCOMMITTED = "released without its final commit; records may be processed again"


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True)
    with KafkaBroker(security=security) as broker:
        yield broker


@pytest.fixture
def guarded(guarded_broker: KafkaBroker) -> GuardedTopic:
    guarded = GuardedTopic(guarded_broker)
    guarded.allow_group("read")
    guarded.allow_topic("describe")
    guarded.allow_topic("read")
    return guarded


async def withdraw(guarded: GuardedTopic) -> None:
    """Alice may not read the topic any more, and thus not commit it."""
    client = _admin.AdminClient({"bootstrap.servers": guarded.around, "log_level": 0})
    rule = _admin.AclBindingFilter(
        _admin.ResourceType.TOPIC,
        guarded.topic,
        _admin.ResourcePatternType.LITERAL,
        "User:alice",
        None,
        _admin.AclOperation.READ,
        _admin.AclPermissionType.ANY,
    )
    for deleted in client.delete_acls([rule]).values():
        assert len(await asyncio.to_thread(deleted.result, DEADLINE)) == 1


async def receive(consumer: Consumer, count: int) -> None:
    """Take so many records, and acknowledge them where that is asked for."""
    taken = 0
    while taken < count:
        records = (await consumer.poll()).records
        taken += len(records)
        for record in records:
            if consumer.config.commit_mode == "ack":
                consumer.ack(record)
    consumer.pause(*consumer.assignment())


async def until_rejected(consumer: Consumer, guarded: GuardedTopic) -> None:
    """Withdraw access, and commit offset 0 until the broker rejects it, which takes a moment."""
    await withdraw(guarded)
    partition = TopicPartition(guarded.topic, 0)
    async with asyncio.timeout(DEADLINE):
        while True:
            # Committing again what is committed needs something that is not: a seek.
            if consumer.config.commit_mode != "manual":
                consumer.seek(partition, 0)
            try:
                await consumer.commit(
                    {partition: 0} if consumer.config.commit_mode == "manual" else None
                )
            except TopicAuthorizationError:
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
async def test_a_rejected_commit_is_raised_and_retried_until_access_is_granted(
    guarded: GuardedTopic, group_protocol: Literal["classic", "consumer"]
) -> None:
    await guarded.send(30)
    consumer = guarded.consumer(
        commit_mode="ack", auto_offset_reset="earliest", group_protocol=group_protocol
    )
    async with asyncio.timeout(DEADLINE), consumer:
        await receive(consumer, 30)
        await consumer.commit()
        assert await guarded.committed() == 30
        await until_rejected(consumer, guarded)
        committed = await guarded.committed()
        consumer.seek(TopicPartition(guarded.topic, 0), 5)
        with pytest.raises(TopicAuthorizationError):
            await consumer.commit()
        assert await guarded.committed() == committed
        guarded.allow_topic("read")
        await until_committed(guarded, 25)
        await consumer.commit()


async def until_committed(guarded: GuardedTopic, count: int) -> None:
    """Nobody asks for it any more: the library goes on by itself."""
    async with asyncio.timeout(DEADLINE):
        while await guarded.committed() != count:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
async def test_closing_while_commits_are_rejected_leaves_in_time_and_raises(
    guarded: GuardedTopic,
    group_protocol: Literal["classic", "consumer"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await guarded.send(30)
    consumer = guarded.consumer(
        commit_mode="ack", auto_offset_reset="earliest", group_protocol=group_protocol
    )
    await consumer.start()
    with caplog.at_level(logging.WARNING, logger="asyncrevoke"):
        async with asyncio.timeout(DEADLINE):
            await receive(consumer, 30)
            await consumer.commit()
            await until_rejected(consumer, guarded)
            with pytest.raises(TopicAuthorizationError):
                await consumer.aclose()
    assert UNCOMMITTED in caplog.text
    assert "commit rejected, trying again" in caplog.text
    assert "partitions lost" not in caplog.text
    assert "closed without leaving the group; partitions move at session timeout" not in caplog.text
    guarded.allow_topic("read")
    async with asyncio.timeout(DEADLINE), guarded.consumer(commit_mode="ack") as successor:
        await until(lambda: len(successor.assignment()) == 3, "the group was left")


async def test_a_rejected_offset_is_committed_when_commit_is_called_again(
    guarded: GuardedTopic,
) -> None:
    await guarded.send(30)
    consumer = guarded.consumer(commit_mode="manual", auto_offset_reset="earliest")
    partition = TopicPartition(guarded.topic, 0)
    async with asyncio.timeout(DEADLINE), consumer:
        await receive(consumer, 30)
        await consumer.commit({partition: 4})
        await until_rejected(consumer, guarded)
        guarded.allow_topic("read")
        while True:
            try:
                await consumer.commit({partition: 7})
            except TopicAuthorizationError:
                await asyncio.sleep(0.01)
            else:
                break
        assert await guarded.committed() == 7


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
async def test_an_offset_committed_before_the_position_is_known_is_where_reading_begins(
    guarded: GuardedTopic, group_protocol: Literal["classic", "consumer"]
) -> None:
    await guarded.send(30)
    consumer = guarded.consumer(
        commit_mode="manual", auto_offset_reset="error", group_protocol=group_protocol
    )
    async with asyncio.timeout(DEADLINE), consumer:
        with pytest.raises(NoOffsetError):
            await consumer.poll()
        offsets = {TopicPartition(guarded.topic, number): 7 + number for number in range(3)}
        await consumer.commit(offsets)
        assert await guarded.committed() == 7 + 8 + 9
        left = {(number, offset) for number in range(3) for offset in range(7 + number, 10)}
        while left:
            for record in (await consumer.poll()).records:
                left.remove((record.partition, record.offset))
