"""A whole service in virtual time: results, lifespans, dispatch, pauses, replays, and no socket."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import (
    AssignedPartition,
    Consumer,
    DecodeError,
    HandlerContext,
    PartitionLostError,
    Pause,
    Record,
    Retry,
    RetryTopic,
    UnmatchedRecordError,
    by_header,
)
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.client.config import GroupProtocol


@pytest.fixture
async def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, opening a socket or looking up a name raises. The event loop has its own."""

    class Forbidden:
        def __init__(self, *_args: object, **_options: object) -> None:
            raise AssertionError("a socket is opened")

    async def forbidden(*_args: object, **_options: object) -> None:
        raise AssertionError("a connection is opened")

    def lookup(*_args: object, **_options: object) -> None:
        raise AssertionError("a name is looked up")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(socket, "socket", Forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(loop, "create_connection", forbidden)
    monkeypatch.setattr(loop, "getaddrinfo", forbidden)


class Shop:
    """Orders are billed once their rate is known, payments are booked, other records skipped."""

    def __init__(self, protocol: GroupProtocol) -> None:
        self.rates: dict[str, float] = {}
        self.bank_is_down = False
        self.events: list[str] = []
        self.booked: list[str] = []
        self.consumer = Consumer(group_id="shop", group_protocol=protocol)
        self.consumer.partition_lifespan(self.counts)
        self.consumer.handler(
            "orders",
            where=by_header("type", "order"),
            publish_to="invoices",
            retry=Retry(attempts=2, backoff=1),
            retry_topic=RetryTopic("orders.retry", delay=60, attempts=1),
            dead_letter="orders.failed",
            unmatched="skip",
        )(self.bill)
        self.consumer.handler(
            "orders", where=by_header("type", "payment"), on_error=Pause(probe_after=30)
        )(self.book)

    async def counts(self, partition: AssignedPartition) -> AsyncGenerator[list[int]]:
        await asyncio.sleep(1)
        try:
            yield []
        except PartitionLostError:
            self.events.append(f"lost {partition.topic_partition}")
            raise
        await asyncio.sleep(1)
        self.events.append(f"saved {partition.topic_partition}")

    async def bill(
        self, order: dict[str, str], context: HandlerContext[object, object, list[int]]
    ) -> dict[str, float]:
        context.partition_state.append(context.record.offset)
        return {"total": self.rates[order["currency"]]}

    async def book(self, payment: str) -> None:
        if self.bank_is_down:
            raise ConnectionError("no connection to the bank")
        self.booked.append(payment)


ORDER = {"type": "order"}
PAYMENT = {"type": "payment"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("no_sockets")
async def test_a_service_runs_without_sockets(protocol: GroupProtocol) -> None:
    shop = Shop(protocol)
    async with TestConsumer(shop.consumer, partitions=2) as t:
        await t.advance(1)  # the lifespans are entered
        await t.publish("orders", {"currency": "EUR"}, key="ada", headers=ORDER, partition=0)
        assert t.partition_state("orders", 0) == [0]
        assert t.dead_letters("orders.failed") == []
        await t.advance(65)
        (letter,) = t.dead_letters("orders.failed")
        assert [call.attempt for call in t.calls_of(shop.bill)] == [1, 2, 3]

        shop.rates["EUR"] = 1.1
        replayed = await t.replay_dead_letters("orders.failed")
        assert replayed.sent == 1
        assert letter.key == b"ada"
        (invoice,) = t.records("invoices")
        assert (invoice.key, invoice.value) == (b"ada", b'{"total":1.1}')

        shop.bank_is_down = True
        await t.publish("orders", "10", headers=PAYMENT, partition=1)
        assert len(shop.consumer.health().paused_partitions) == 1
        shop.bank_is_down = False
        await t.advance(30)
        assert shop.booked == ["10"]
        assert shop.consumer.health().paused_partitions == frozenset()

        await t.publish("orders", "?", partition=1)
        await t.advance(10)
        assert t.committed("orders", 1) == len(
            [record for record in t.records("orders") if record.partition == 1]
        )

        shop.events.clear()
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert shop.events == ["saved orders-0"]
        assert t.partition_state("orders", 0) is None
        await t.lose(("orders", 1))
        assert "lost orders-1" in shop.events

        await t.crash()
        await t.restart(shop.consumer)


async def test_records_that_no_handler_was_called_for_are_listed() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", where=by_header("a", "b"), unmatched="skip", dead_letter="failed")
    async def handle(value: dict[str, int], record: Record) -> None:
        raise ValueError

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {}, headers={"a": "c"})
        await t.publish("orders", "no JSON", headers={"a": "b"})
        await t.publish("orders", {}, headers={"a": "b"})
        found = [(type(each.error), each.outcome) for each in t.not_handled]
        assert found == [(UnmatchedRecordError, "skipped"), (DecodeError, "dead_lettered")]
        assert t.not_handled[1].record.value == b"no JSON"
        assert [call.outcome for call in t.calls] == ["dead_lettered"]


async def test_an_unmatched_record_that_stops_the_consumer_is_listed() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders", where=lambda record: record.key is not None)
    async def handle(value: bytes) -> None: ...

    t = TestConsumer(consumer)
    with pytest.raises(UnmatchedRecordError):
        async with t:
            await t.publish("orders", b"x")
    assert [each.outcome for each in t.not_handled] == ["stopped"]


async def test_the_state_of_a_partition_is_none_without_a_lifespan() -> None:
    consumer = Consumer(group_id="g")

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        assert t.partition_state("orders", 0) is None
        with pytest.raises(ValueError, match="there is no partition orders-9"):
            t.partition_state("orders", 9)
