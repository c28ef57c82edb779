"""TestConsumer of a share group: acknowledgements, deliveries, locks, connections and leaders."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncrevoke import Consumer, IllegalStateError, RateLimit
from asyncrevoke.testing import TestConsumer


async def test_a_record_is_accepted_when_its_handler_has_returned() -> None:
    consumer = Consumer(group_id="mails", group_type="share")

    @consumer.handler("mails")
    async def send(_mail: dict[str, int]) -> None:
        await asyncio.sleep(10)

    async with TestConsumer(consumer, partitions=2) as t:
        await t.publish("mails", {"id": 1}, partition=1)
        assert t.in_flight == 1
        assert t.acknowledged("mails", 1) == {}
        await t.advance(11)
        assert t.acknowledged("mails", 1) == {0: "accept"}
        assert t.deliveries("mails", 1) == {0: 1}
        assert t.deliveries("mails", 0) == {}
        assert t.assignment() == {("mails", 0), ("mails", 1)}


async def test_few_records_are_acquired_that_wait_for_the_rate_of_their_handler() -> None:
    consumer = Consumer(group_id="mails", group_type="share")

    @consumer.handler("mails", rate_limit=RateLimit(2, per=1.0))
    async def send(_mail: int) -> None:
        await asyncio.sleep(5)

    async with TestConsumer(consumer) as t:
        for number in range(20):
            await t.publish("mails", number, partition=0)
        for second in range(1, 9):
            await t.advance(1)
            # As many have begun as the rate allows, and no more wait than begin next.
            assert 2 * second <= len(t.deliveries("mails", 0)) <= 2 * second + 4
        await t.advance(10)
        assert t.deliveries("mails", 0) == dict.fromkeys(range(20), 1)
        assert set(t.acknowledged("mails", 0).values()) == {"accept"}


@pytest.mark.parametrize("limit", [{"concurrency": 2}, {"rate_limit": RateLimit(2, per=1000)}])
async def test_a_limited_handler_leaves_slots_to_others(limit: dict[str, Any]) -> None:
    consumer = Consumer(group_id="mails", group_type="share", concurrency=8)
    ended: list[int] = []

    @consumer.handler("mails", **limit)
    async def send(_mail: int) -> None:
        await asyncio.sleep(1000)

    @consumer.handler("orders")
    async def handle(order: int) -> None:
        ended.append(order)

    async with TestConsumer(consumer) as t:
        for number in range(40):
            await t.publish("mails", number, partition=0)
        for number in range(20):
            await t.publish("orders", number, partition=0)
        await t.advance(5)
        assert ended == list(range(20))
        # What one response may have beyond the limit.
        assert len(t.deliveries("mails", 0)) <= 2 + 8
        await t.advance(1010)
        assert len(t.deliveries("mails", 0)) <= 4 + 8
        assert len(t.acknowledged("mails", 0)) == 2


def _slow(group: str = "mails") -> tuple[Consumer, list[str]]:
    """A consumer whose handler takes 100 s, and what it did."""
    consumer = Consumer(group_id=group, group_type="share")
    seen: list[str] = []

    @consumer.handler("mails")
    async def send(mail: str) -> None:
        seen.append(f"{mail} begins")
        await asyncio.sleep(100)
        seen.append(f"{mail} ends")

    return consumer, seen


async def test_locks_are_renewed_while_a_handler_runs() -> None:
    consumer, seen = _slow()
    async with TestConsumer(consumer) as t:
        await t.publish("mails", "a", partition=0)
        await t.advance(101)
        assert seen == ["a begins", "a ends"]
        assert t.deliveries("mails", 0) == {0: 1}
        assert t.acknowledged("mails", 0) == {0: "accept"}


async def test_a_record_whose_lock_has_passed_is_delivered_again() -> None:
    consumer, seen = _slow()
    async with TestConsumer(consumer) as t:
        await t.publish("mails", "a", partition=0)
        before = t.time
        await t.expire_locks()
        assert 15 <= t.time - before <= 30
        await t.advance(1)
        assert t.deliveries("mails", 0) == {0: 2}
        assert seen[:2] == ["a begins", "a begins"]
        await t.advance(100)
        assert t.acknowledged("mails", 0) == {0: "accept"}
        with pytest.raises(IllegalStateError, match="no record is locked"):
            await t.expire_locks()


async def test_a_closed_connection_releases_what_was_acquired() -> None:
    consumer, seen = _slow()
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("mails", "a")
        await t.disconnect()
        await t.advance(1)
        assert t.deliveries("mails", 0) == {0: 2}
        assert seen[:2] == ["a begins", "a begins"]


async def test_a_new_leader_delivers_again_and_counts_anew() -> None:
    consumer, seen = _slow()
    async with TestConsumer(consumer) as t:
        await t.publish("mails", "a", partition=0)
        await t.publish("mails", "b", partition=1)
        await t.move_leader("mails", 0)
        await t.advance(5)
        assert seen == ["a begins", "b begins", "a begins"]
        # It was never released, so that the new leader does not know of the first delivery.
        assert t.deliveries("mails", 0) == {0: 1}
        await t.advance(100)
        assert t.acknowledged("mails", 0) == {0: "accept"}
        assert t.acknowledged("mails", 1) == {0: "accept"}


async def test_the_records_of_a_crashed_consumer_are_delivered_to_the_next_one() -> None:
    consumer, seen = _slow()
    async with TestConsumer(consumer) as t:
        await t.publish("mails", "a", partition=0)
        await t.crash()
        await t.restart(consumer)
        assert t.deliveries("mails", 0) == {0: 2}
        await t.advance(101)
        assert seen == ["a begins", "a begins", "a ends"]


async def test_calls_for_consumer_groups_are_refused_with_what_to_use_instead() -> None:
    consumer, _ = _slow()
    where = ("mails", 0)
    async with TestConsumer(consumer) as t:
        for call in (t.revoke, t.withdraw, t.give, t.lose):
            with pytest.raises(IllegalStateError, match=r"own no partitions: use expire_locks\(\)"):
                await call(where)
        for ask in (t.committed, t.committed_offset):
            with pytest.raises(IllegalStateError, match=r"use acknowledged\(\)"):
                ask(*where)
        with pytest.raises(IllegalStateError, match="there is no lifespan"):
            t.partition_state(*where)


async def test_calls_for_share_groups_are_refused_in_a_consumer_group() -> None:
    consumer = Consumer("mails", group_id="mails")
    where = ("mails", 0)
    async with TestConsumer(consumer) as t:
        for refused in (t.expire_locks(), t.disconnect(), t.move_leader(*where)):
            with pytest.raises(IllegalStateError, match='only a consumer with group_type="share"'):
                await refused
        for ask in (t.acknowledged, t.deliveries):
            with pytest.raises(IllegalStateError, match='only a consumer with group_type="share"'):
                ask(*where)


async def test_topics_whose_names_begin_alike_are_told_apart() -> None:
    consumer = Consumer(group_id="mails", group_type="share")
    seen: list[str] = []

    @consumer.handler("mails-to-customers-in-europe", "mails-to-customers-in-asia")
    async def send(mail: str) -> None:
        seen.append(mail)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("mails-to-customers-in-europe", "a")
        await t.publish("mails-to-customers-in-asia", "b")
        await t.advance(1)
        assert t.acknowledged("mails-to-customers-in-europe", 0) == {0: "accept"}
        assert t.acknowledged("mails-to-customers-in-asia", 0) == {0: "accept"}
    assert seen == ["a", "b"]
