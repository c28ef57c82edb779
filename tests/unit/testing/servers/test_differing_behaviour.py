"""What brokers do differently: the consumer goes on, or one line says what waits and what helps."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from unit.testing.servers.published_brokers import BY_NAME
from unit.testing.servers.published_cluster import PublishedConsumer

from asyncrevoke import Consumer, InconsistentGroupError, PublishError, TopicPartition
from asyncrevoke.client.core.partition.record_buffer import SoughtTime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from unit.testing.servers.published_brokers import PublishedBroker

from asyncrevoke.client.errors import RequestTimeoutError
from asyncrevoke.client.protocol.messages import ErrorCode

LOST = "brokers do not keep commit metadata"
SHORT = "the broker rejects a completion map of this size"


@asynccontextmanager
async def with_slow_records(kind: PublishedBroker) -> AsyncGenerator[PublishedConsumer]:
    """Of 301 records each third one is handled at the end, and the others before."""
    consumer = Consumer(group_id="billing", order_by=None, concurrency=200)
    goes_on = asyncio.Event()

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        if int(value) % 3 == 0:
            await goes_on.wait()

    async with PublishedConsumer(kind, consumer, partitions=1) as t:
        t.brokers.write_batch("orders", [str(number).encode() for number in range(301)])
        await t.advance(5)
        yield t
        goes_on.set()
        await t.advance(5)
        assert t.committed("orders", 0) == len(t.records("orders"))


async def test_brokers_that_lose_commit_metadata_are_noticed_at_the_first_completion_map(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_slow_records(BY_NAME["Tansu"]) as t:
        (line,) = (message for message in caplog.messages if LOST in message)
        assert "completion_map=0" in line
        maps = [commit for commit in t.brokers.commits if commit]
        assert len(maps) == 1, "no further map is written"
        await t.publish("orders", "301")
        await t.publish("orders", "302")
        await t.advance(5)
        assert [commit for commit in t.brokers.commits if commit] == maps
    assert caplog.text.count(LOST) == 1


async def test_brokers_that_keep_commit_metadata_are_asked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_slow_records(BY_NAME["MSK Serverless"]) as t:
        await t.publish("orders", "301")
        await t.advance(5)
        maps = [commit for commit in t.brokers.commits if commit]
        assert len(maps) > 1
        assert t.brokers.reads_of_offsets == 2, "at the start, and after the first map"
    assert LOST not in caplog.text


@pytest.mark.parametrize(
    ("kind", "handled_before_release", "committed"),
    [("Tansu", "AaB", 3), ("MSK Serverless", "AB", 1)],
)
async def test_a_revocation_drops_gaps_only_where_brokers_keep_the_completion_map(
    kind: str, handled_before_release: str, committed: int
) -> None:
    consumer = Consumer(group_id="billing")
    goes_on = asyncio.Event()
    handled: list[str] = []

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        if value == "A":
            await goes_on.wait()
        handled.append(value)

    async with PublishedConsumer(BY_NAME[kind], consumer, partitions=1) as t:
        await t.publish("orders", "A", key="a")
        await t.publish("orders", "a", key="a")
        await t.publish("orders", "B", key="b")
        await t.advance(2)
        assert handled == ["B"], "a map is committed"
        await t.revoke(("orders", 0))
        goes_on.set()
        await t.advance(5)
        assert not t.assignment()
        assert "".join(sorted(handled, key=str.lower)) == handled_before_release
        assert t.committed("orders", 0) == committed


async def test_a_completion_map_becomes_shorter_where_brokers_take_less_than_4096_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = replace(BY_NAME["proxy"], longest_commit_metadata=40)
    async with with_slow_records(kind) as t:
        await t.publish("orders", "301")
        await t.advance(5)
        assert any(len(commit) > 40 for commit in t.brokers.commits)
        assert 0 < len(t.brokers.commits[-1]) <= 40
    assert SHORT in caplog.text
    assert LOST not in caplog.text


async def test_a_session_timeout_that_brokers_refuse_names_the_option() -> None:
    consumer = Consumer("orders", group_id="billing", session_timeout=3)
    with pytest.raises(InconsistentGroupError, match="session_timeout=3"):
        async with PublishedConsumer(BY_NAME["Azure Event Hubs"], consumer):
            await consumer.poll()


async def test_offsets_that_stay_unstable_are_waited_for_with_one_sentence_and_a_seek_helps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = BY_NAME["Redpanda with an open transaction of a dead producer"]
    consumer = Consumer(group_id="billing")
    handled: list[str] = []

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        handled.append(value)

    async with PublishedConsumer(kind, consumer, partitions=1) as t:
        await t.publish("orders", "0")
        await t.advance(1)
        assert handled == []
        lines = [message for message in caplog.messages if "waiting for the position" in message]
        assert "a transaction with offsets of this group has not ended" in lines[0]
        assert "seek()" in lines[0]
        asked = asyncio.create_task(consumer.committed(("orders", 0)))
        await t.advance(60)
        with pytest.raises(RequestTimeoutError, match="unstable_offset_commit"):
            await asked
        consumer.seek(("orders", 0), 0)
        await t.advance(1)
        assert handled == ["0"]
        assert t.committed("orders", 0) == 1


async def test_records_older_than_the_time_sought_are_left_out_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(group_id="billing", auto_offset_reset=timedelta(minutes=30))
    handled: list[str] = []

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        handled.append(value)

    async with PublishedConsumer(BY_NAME["Bufstream"], consumer, partitions=2) as t:
        await t.revoke(("orders", 0))
        await t.advance(10)
        t.brokers.group.offsets.clear()
        now = int(t.brokers.wall_time() * 1000)
        for number in range(6):
            minutes = 60 - 10 * number
            await t.publish("orders", str(number), partition=0, timestamp=now - minutes * 60_000)
        await t.give(("orders", 0))
        await t.advance(10)
        assert handled == ["4", "5"], "2 and 3 are older than 30 minutes"
        assert t.committed("orders", 0) == 6
    (line,) = (message for message in caplog.messages if "only approximately" in message)
    assert "partition=orders-0" in line
    assert "offset=2" in line


@pytest.mark.parametrize(
    ("named", "read"),
    [
        (1, ["3", "4", "0", "5"]),
        # The broker has named a record that cannot be read, such as a control marker.
        (0, ["1", "2", "3", "4", "0", "5"]),
    ],
)
async def test_older_records_come_only_after_the_first_one_of_the_time_sought(
    named: int, read: list[str]
) -> None:
    consumer = Consumer("orders", group_id="billing")
    orders = TopicPartition("orders", 0)
    async with PublishedConsumer(BY_NAME["Bufstream"], consumer, partitions=1) as t:
        for number in (0, 1, 2, 3, 4, 0):
            await t.publish("orders", str(number), timestamp=1000 * (number + 1))
        consumer.seek(orders, 1)
        assert consumer._session is not None
        buffer = consumer._session.core.seeking.live(orders).buffer
        assert buffer is not None
        buffer.set_time_sought(SoughtTime(4000, named))
        values: list[str] = []
        for _ in range(6):
            step = await consumer.poll(timeout=1, max_records=1)
            values += [(record.value or b"").decode() for record in step.records]
            if len(values) == len(read) - 1:
                await t.publish("orders", "5", timestamp=1000)
        assert values == read
        assert consumer.position(orders) == 7


async def test_records_written_later_are_not_older_than_the_time_sought() -> None:
    consumer = Consumer("orders", group_id="billing")
    orders = TopicPartition("orders", 0)
    async with PublishedConsumer(BY_NAME["Bufstream"], consumer, partitions=1) as t:
        for _ in range(3):
            await t.publish("orders", "old", timestamp=1000)
        consumer.seek(orders, 0)
        assert consumer._session is not None
        consumer._session.core.seeking.leave_out_older({orders: 4000})
        assert not (await consumer.poll(timeout=1)).records
        assert consumer.position(orders) == 3
        await t.publish("orders", "new", timestamp=1000)
        (record,) = (await consumer.poll(timeout=1)).records
        assert record.value == b"new"


async def test_a_broker_that_returns_nothing_inside_a_batch_is_named_after_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    consumer = Consumer(group_id="billing")
    handled: list[str] = []

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        handled.append(value)

    async with PublishedConsumer(BY_NAME["Tansu"], consumer, partitions=1) as t:
        t.brokers.write_batch("orders", [b"0", b"1", b"2"])
        await t.advance(2)
        assert handled == ["0", "1", "2"]
        consumer.seek(("orders", 0), 1)
        await t.advance(8)
        assert "waiting to fetch" not in caplog.text
        await t.advance(4)
        (line,) = (message for message in caplog.messages if "waiting to fetch" in message)
        assert "no records from offset 1" in line
        assert "seek()" in line
        consumer.seek(("orders", 0), 3)
        await t.publish("orders", "3")
        await t.advance(30)
        assert handled == ["0", "1", "2", "3"]
        assert caplog.text.count("waiting to fetch") == 1
        assert "fetching again" in caplog.text


async def test_the_error_of_results_that_brokers_reject_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", publish_to="invoices", dead_letter="orders.failed")
    async def bill(value: str) -> str:
        return value

    async with PublishedConsumer(BY_NAME["Tansu"], consumer, partitions=1) as t:
        t.brokers.rejects = ErrorCode.unknown_server_error
        await t.publish("orders", "0")
        await t.advance(60)
        assert "unknown_server_error" in caplog.text
        t.brokers.rejects = ErrorCode.none
        await t.advance(60)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.unstable_offset_commit,
        ErrorCode.unknown_server_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_coordinator,
    ],
)
async def test_commits_that_brokers_never_accept_are_named_after_ten_seconds(
    error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(_value: str) -> None:
        pass

    async with PublishedConsumer(BY_NAME["MSK Serverless"], consumer, partitions=1) as t:
        t.brokers.rejects_commits = error
        await t.publish("orders", "0")
        await t.advance(9)
        assert "waiting for commits" not in caplog.text
        await t.advance(4)
        (line,) = (message for message in caplog.messages if "waiting for commits" in message)
        assert f"reason={error.name}" in line
        t.brokers.rejects_commits = ErrorCode.none
        await t.advance(4)
        assert t.committed("orders", 0) == 1
        assert caplog.text.count("waiting for commits") == 1
        assert "commits are accepted again" in caplog.text


async def test_a_broker_without_idempotence_is_named_with_the_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(group_id="billing")
    async with PublishedConsumer(BY_NAME["Confluent Freight"], consumer, topics={"invoices": 1}):
        with pytest.raises(PublishError, match=r"InitProducerId.*Consumer\(idempotent=False\)"):
            await consumer.producer.publish("invoices", b"1")


async def test_a_compression_that_brokers_refuse_is_named_with_the_option() -> None:
    consumer = Consumer(group_id="billing", compression="zstd")
    async with PublishedConsumer(BY_NAME["Azure Event Hubs"], consumer, topics={"invoices": 1}):
        with pytest.raises(PublishError, match=r'Consumer\(compression="gzip"\)'):
            await consumer.producer.publish("invoices", b"1")
