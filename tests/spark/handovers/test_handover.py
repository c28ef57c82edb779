"""Offsets are handed to groups of a real broker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.real_topics import create_again, delete_records, produce, set_partitions

from asyncrevoke import Consumer
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import HandoverError
from asyncrevoke.spark.handovers.group_handover import apply_handover, handover, plan_handover
from asyncrevoke.spark.reading.offsets import resolve_ranges

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.kafka_topic(partitions=2)]


async def fill(broker: RunningBroker, topic: str, count: int = 20) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(count):
            await producer.send_and_wait(topic, b"%d" % n, partition=n % 2)


async def first_records(broker: RunningBroker, topic: str) -> dict[int, int]:
    """The first offset of each partition that a live member of the group gets."""
    found: dict[int, int] = {}
    async with (
        asyncio.timeout(30),
        Consumer(
            topic, group_id=topic, bootstrap_servers=broker.bootstrap_servers, commit_mode="manual"
        ) as consumer,
    ):
        async for batch in consumer:
            for record in batch.records:
                found.setdefault(record.partition, record.offset)
            if len(found) == 2:
                break
    return found


async def test_a_dry_run_reports_and_commits_nothing(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    wanted = {TopicPartition(kafka_topic, 0): 4, TopicPartition(kafka_topic, 1): 7}
    address = kafka_broker.bootstrap_servers
    assert handover(wanted, group=kafka_topic, bootstrap=address) == wanted
    plan = plan_handover(wanted, group=kafka_topic, bootstrap=address)
    assert plan.state == "missing"
    assert [(m.before, m.after, m.skipped, m.repeated) for m in plan.moves] == [
        (None, 4, 4, 0),
        (None, 7, 7, 0),
    ]
    assert await first_records(kafka_broker, kafka_topic) == {0: 0, 1: 0}


async def test_a_group_resumes_at_the_offsets_of_the_handover(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    wanted = {TopicPartition(kafka_topic, 0): 4, TopicPartition(kafka_topic, 1): 7}
    handover(wanted, group=kafka_topic, bootstrap=address, dry_run=False)
    assert await first_records(kafka_broker, kafka_topic) == {0: 4, 1: 7}
    back = {TopicPartition(kafka_topic, 0): 6, TopicPartition(kafka_topic, 1): 2}
    plan = plan_handover(back, group=kafka_topic, bootstrap=address)
    assert [(m.before, m.skipped, m.repeated) for m in plan.moves] == [(4, 2, 0), (7, 0, 5)]
    assert plan.state.lower() == "empty"
    assert apply_handover(plan, bootstrap=address) == back
    assert await first_records(kafka_broker, kafka_topic) == {0: 6, 1: 2}


async def test_a_group_begins_at_the_first_offset_of_partitions_that_the_query_did_not_know(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    await fill(kafka_broker, kafka_topic)
    for name, text in (("offsets", "v1\n{}\n" + json.dumps({kafka_topic: {"0": 10, "1": 10}})),
                       ("commits", "v1\n{}")):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text(text)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, kafka_topic)
    await asyncio.to_thread(set_partitions, kafka_broker, kafka_topic, 3)
    await asyncio.to_thread(produce, kafka_broker, kafka_topic, 5, partition=2)
    await asyncio.to_thread(delete_records, kafka_broker, kafka_topic, 2, before=2)
    known = {TopicPartition(kafka_topic, number): 10 for number in range(2)}
    added = TopicPartition(kafka_topic, 2)
    assert handover(known, group=kafka_topic, bootstrap=address) == known
    for source in (tmp_path, ranges):
        plan = plan_handover(source, group=kafka_topic, bootstrap=address)
        assert {move.partition: move.after for move in plan.moves if not move.new} == known
        (move,) = (move for move in plan.moves if move.new)
        assert (move.partition, move.before, move.after) == (added, None, 2)
    handover({added: 4}, group=kafka_topic, bootstrap=address, dry_run=False)
    offsets = handover(tmp_path, group=kafka_topic, bootstrap=address, dry_run=False)
    assert offsets == known | {added: 4}
    await asyncio.to_thread(delete_records, kafka_broker, kafka_topic, 2, before=5)
    (move,) = (
        m for m in plan_handover(ranges, group=kafka_topic, bootstrap=address).moves if m.new
    )
    assert (move.before, move.after, move.skipped) == (4, 5, 1)


async def test_no_record_of_an_added_partition_is_lost_to_a_group_that_reads_the_latest(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, kafka_topic)
    await asyncio.to_thread(set_partitions, kafka_broker, kafka_topic, 3)
    await asyncio.to_thread(produce, kafka_broker, kafka_topic, 5, partition=2)
    handover(ranges, group=kafka_topic, bootstrap=address, dry_run=False)
    async with (
        asyncio.timeout(30),
        Consumer(
            kafka_topic,
            group_id=kafka_topic,
            bootstrap_servers=address,
            auto_offset_reset="latest",
        ) as consumer,
    ):
        places: list[tuple[int, int]] = []
        while len(places) < 5:
            batch = await anext(consumer)
            places += [(record.partition, record.offset) for record in batch.records]
    assert sorted(places) == [(2, offset) for offset in range(5)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_with_members_is_rejected_and_they_are_named(
    protocol: GroupProtocol, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    wanted = {TopicPartition(kafka_topic, 0): 4}
    consumer = Consumer(
        kafka_topic,
        group_id=kafka_topic,
        bootstrap_servers=address,
        group_protocol=protocol,
        client_id="billing-7",
    )
    async with consumer:
        # A plan that was made before the member came does not get through either.
        plan = plan_handover(wanted, group=kafka_topic, bootstrap=address)
        await anext(consumer)
        with pytest.raises(HandoverError, match=r"1 live member\(s\): billing-7 at .*Stop them"):
            apply_handover(plan._replace(members=()), bootstrap=address)
        assert plan_handover(wanted, group=kafka_topic, bootstrap=address).members
    assert handover(wanted, group=kafka_topic, bootstrap=address, dry_run=False) == wanted


async def test_the_broker_itself_rejects_what_no_look_has_seen(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    from asyncrevoke.client.groups.changes.consumer_offsets import commit_offsets
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.errors import GroupsError
    from asyncrevoke.spark.reading.offsets import configured

    await fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    async with Consumer(kafka_topic, group_id=kafka_topic, bootstrap_servers=address) as consumer:
        await anext(consumer)
        async with GroupsClient(configured(address)) as cluster:
            with pytest.raises(GroupsError, match="has members: stop them first"):
                await commit_offsets(cluster, kafka_topic, {TopicPartition(kafka_topic, 0): 4})


@pytest.mark.parametrize(("offset", "sentence"), [(21, "is beyond the log's end 10"), (0, "")])
async def test_offsets_that_the_topic_does_not_have_are_rejected(
    offset: int, sentence: str, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    wanted = {TopicPartition(kafka_topic, 0): offset}
    address = kafka_broker.bootstrap_servers
    if not sentence:
        assert handover(wanted, group=kafka_topic, bootstrap=address, dry_run=False) == wanted
        return
    with pytest.raises(HandoverError, match=sentence):
        handover(wanted, group=kafka_topic, bootstrap=address, dry_run=False)


async def test_a_partition_that_is_not_there_is_rejected(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    wanted = {TopicPartition(kafka_topic, 5): 1}
    with pytest.raises(HandoverError, match="has no partition 5"):
        handover(wanted, group="x", bootstrap=kafka_broker.bootstrap_servers)


async def test_offsets_of_a_topic_that_was_created_again_are_rejected(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await fill(kafka_broker, kafka_topic)
    address = kafka_broker.bootstrap_servers
    ranges = resolve_ranges(address, kafka_topic, end=4)
    await asyncio.to_thread(create_again, kafka_broker, kafka_topic, 2)
    await fill(kafka_broker, kafka_topic)
    with pytest.raises(HandoverError, match=r"created again .* are those of the deleted topic"):
        handover(ranges, group=kafka_topic, bootstrap=address)
