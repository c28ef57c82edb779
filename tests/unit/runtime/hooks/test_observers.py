"""Observers look on; what they do changes nothing."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import ConfigError, Consumer, IllegalStateError, Record, Retry, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import HandledItem, Observed, Observer
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke import PollResult
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision


class Everything(Observer):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.consumer: Observed | None = None
        self.events: list[tuple[str, Mapping[str, object]]] = []
        self.records: list[Record] = []
        self.times: list[tuple[str, float]] = []
        self.raises: list[tuple[str, int, BaseException]] = []
        self.decisions: list[tuple[Record, FailureDecision]] = []
        self.ticks = 0
        self.is_closed = False

    def on_open(self, consumer: Observed) -> None:
        self.consumer = consumer

    def on_close(self) -> None:
        self.is_closed = True

    def on_event(self, event: str, fields: Mapping[str, object]) -> None:
        self.events.append((event, fields))

    def on_poll(self, batch: PollResult) -> None:
        self.records += batch.records

    def on_tick(self, late: float) -> None:
        self.ticks += 1

    def on_handlers_completed(self, handler: str, topic: str, seconds: Sequence[float]) -> None:
        self.times += [(topic, second) for second in seconds]

    def on_handler_error(
        self, handler: str, what: HandledItem, seconds: float, error: BaseException
    ) -> None:
        assert seconds >= 0
        self.raises.append((what.topic, what.partition, error))

    def on_failure_decision(self, handler: str, record: Record, decision: FailureDecision) -> None:
        self.decisions.append((record, decision))

    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def consumer_with(*observers: Observer) -> Consumer:
    consumer = Consumer(group_id="billing")
    for observer in observers:
        consumer.observe(observer)
    return consumer


async def test_an_observer_is_called_for_records_handlers_commits_and_revocations() -> None:
    seen = Everything()
    consumer = consumer_with(seen)

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(0.5)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.advance(3)
        await t.publish("orders", b"2", partition=1)
        await t.revoke(("orders", 1))
        await t.advance(3)
    assert [record.value for record in seen.records] == [b"1", b"2"]
    assert [topic for topic, _ in seen.times] == ["orders", "orders"]
    assert all(seconds >= 0 for _, seconds in seen.times)
    assert seen.raises == []
    wanted = ["assigned", "committed", "revocation requested", "released"]
    assert [event for event in wanted if event in seen.names()] == wanted
    committed = next(fields for event, fields in seen.events if event == "committed")
    assert isinstance(committed["seconds"], float)
    assert seen.ticks >= 6
    assert seen.is_closed


async def test_an_observer_sees_how_partitions_stand() -> None:
    seen = Everything()
    consumer = consumer_with(seen)

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(5)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        assert seen.consumer is not None
        assert (seen.consumer.group_id, seen.consumer.client_id) == ("billing", "asyncrevoke")
        status = {
            partition.partition: partition for partition in seen.consumer.snapshot().partitions
        }
        assert len(status) == 4
        first = status[TopicPartition("orders", 0)]
        assert (first.revoking, first.in_flight, first.oldest, first.lag) == ("", 1, 0, 0)
        await t.revoke(("orders", 0))
        snapshot = seen.consumer.snapshot()
        assert [s.revoking for s in snapshot.partitions if s.in_flight] == ["draining"]
        assert [record.offset for record in snapshot.health.blocking_records] == [0]


async def test_an_observer_is_called_for_failure_decisions_and_failed_sends() -> None:
    seen = Everything()
    consumer = consumer_with(seen)

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=0.1), dead_letter="orders.dlq")
    async def bill(order: bytes) -> None:
        raise LookupError("no such order")

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1")
        await t.advance(2)
        assert len(t.dead_letters("orders.dlq")) == 1
    assert [decision for _, decision in seen.decisions] == ["retried", "dead_lettered"]
    assert [type(error) for *_, error in seen.raises] == [LookupError, LookupError]
    assert seen.times == [], "sending is not a call"


async def test_of_several_topics_each_call_is_timed_once_also_beside_records_that_are_sent_on() -> (
    None
):
    seen = Everything()
    consumer = consumer_with(seen)

    @consumer.handler("orders", "returns", dead_letter="dlq")
    async def bill(order: bytes) -> None:
        if order == b"bad":
            raise LookupError("no such order")

    async with TestConsumer(consumer) as t:
        for topic, value in [("orders", b"bad"), ("returns", b"1"), ("orders", b"bad")] * 3:
            await t.publish(topic, value)
            await t.publish("orders", b"good")
        await t.advance(1)
    assert len(t.dead_letters("dlq")) == 6
    assert sorted(topic for topic, _ in seen.times) == ["orders"] * 9 + ["returns"] * 3
    assert len(seen.raises) == 6


async def test_a_call_that_is_cancelled_has_raised_that() -> None:
    seen = Everything()
    consumer = consumer_with(seen)

    @consumer.handler("orders")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(60)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"1", partition=0)
        await t.lose(("orders", 0))
        assert [type(error) for *_, error in seen.raises] == [asyncio.CancelledError]
    assert seen.times == []


async def test_a_failing_observer_is_logged_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Observer):
        def on_poll(self, batch: PollResult) -> None:
            raise ZeroDivisionError

    seen = Everything()
    consumer = consumer_with(Broken(), seen)

    @consumer.handler("orders")
    async def bill(order: bytes) -> None: ...

    with caplog.at_level(logging.ERROR, "asyncrevoke"):
        async with TestConsumer(consumer) as t:
            await t.publish("orders", b"1")
            await t.publish("orders", b"2")
            await t.advance(2)
            assert sum(t.committed("orders", n) or 0 for n in range(4)) == 2
    (line,) = caplog.records
    fields = "group=billing observer=Broken"
    assert line.getMessage() == f"observer failed; it is not called any more {fields}"
    assert len(seen.records) == 2


async def test_facts_are_had_from_another_thread_in_time_or_not_at_all() -> None:
    seen = Everything()
    async with Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing") as consumer:
        assert consumer.health().assigned == 0
        with pytest.raises(IllegalStateError, match="before the consumer is entered"):
            consumer.observe(seen)
    consumer = Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing")
    consumer.observe(seen)
    async with consumer:
        assert seen.consumer is not None
        snapshot = await asyncio.to_thread(seen.consumer.snapshot)
        assert snapshot.health.assigned == 0
        with ThreadPoolExecutor(1) as other:
            asking = other.submit(seen.consumer.snapshot)
            # Waited for without `await`: the loop does not run until the thread has given up.
            assert isinstance(asking.exception(60), TimeoutError)


def test_what_is_no_observer_is_rejected_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"is no Observer: call it, Everything\(\)"):
        Consumer(group_id="billing").observe(Everything)  # type: ignore[arg-type]
