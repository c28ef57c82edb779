"""A journal has the commits of transactions, and which results were written for which record."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.journal_rows import rows_of
from unit.testing.exactly_once.test_simulated_faults import inject

from asyncrevoke import Consumer, FatalError, HandlerContext
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.journal import Journal
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.testing.fake_kafka.group_state import Reply


def billing(folder: Path, **options: Any) -> Consumer:
    return Consumer(
        group_id="billing",
        processing="exactly_once",
        transaction_interval=1,
        journal=Journal(folder),
        **options,
    )


def results_in(folder: Path) -> list[tuple[int, int, str, int, int, int]]:
    """Of each result: partition and offset of its record, its topic, partition, offset and
    transaction."""
    return [
        (
            row["partition"],
            row["offset"],
            json.loads(row["facts"])["topic"],
            row["records"],
            row["last_offset"],
            row["checksum"],
        )
        for row in rows_of(folder, "RESULT")
    ]


async def test_results_and_commits_of_transactions_have_rows(tmp_path: Path) -> None:
    consumer = billing(tmp_path)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes, context: HandlerContext) -> bytes:
        await context.publish("receipts", b"receipt of " + order, partition=1)
        return order

    async with TestConsumer(consumer, partitions=2) as t:
        await t.advance(2)
        for partition, order in ((0, b"1"), (0, b"2"), (1, b"3")):
            await t.publish("orders", order, partition=partition)
        await t.advance(2)
        await t.publish("orders", b"4", partition=1)
        await t.advance(2)
        parts = {r.value: r.partition for r in t.records("invoices")}
    found = results_in(tmp_path)
    values = {(0, 0): b"1", (0, 1): b"2", (1, 0): b"3", (1, 1): b"4"}
    places = {(topic, p, o): to for p, o, topic, to, *_ in found}
    assert places == {
        **{("invoices", *source): parts[order] for source, order in values.items()},
        **{("receipts", *source): 1 for source in values},
    }
    # The simulated brokers do not say the offsets of records in transactions.
    assert {at for *_, at, _ in found} == {-1}
    first, second = sorted({number for *_, number in found})
    assert first < second
    assert {(p, o) for p, o, *_, number in found if number == second} == {(1, 1)}
    commits = {
        (row["partition"], row["offset"]): row
        for row in rows_of(tmp_path, "COMMIT")
        if row["offset"]
    }
    assert commits.keys() == {(0, 2), (1, 1), (1, 2)}
    assert {row["outcome"] for row in commits.values()} == {"ok"}
    assert all(row["member"] and row["generation"] >= 0 for row in commits.values())
    assert all(row["started_us"] <= row["at_us"] for row in commits.values())


async def test_a_batch_with_a_result_for_each_record_has_each_ones_row(tmp_path: Path) -> None:
    consumer = billing(tmp_path)

    @consumer.handler("orders", publish_to="invoices", batch=True, max_records=3, max_wait=0.5)
    async def bill(orders: list[bytes]) -> list[bytes]:
        return orders if len(orders) > 2 else [b"one for all"]

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(2)
        for order in (b"1", b"2", b"3", b"4", b"5"):
            await t.publish("orders", order)
        await t.advance(3)
        values = [record.value for record in t.records("invoices")]
    assert values == [b"1", b"2", b"3", b"one for all"]
    assert [offset for _, offset, *_ in results_in(tmp_path)] == [0, 1, 2, 3]


async def test_results_of_a_loop_have_rows_if_their_record_is_named(tmp_path: Path) -> None:
    consumer = Consumer(
        "orders",
        group_id="billing",
        processing="exactly_once",
        transaction_interval=60,
        journal=Journal(tmp_path),
    )
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        async for batch in consumer:
            async with consumer.transaction() as tx:
                for record in batch.records:
                    tx.publish("invoices", record.value, record=record)
                tx.publish("totals", b"2")
            if batch.records:
                break
    found = results_in(tmp_path)
    assert [(offset, topic) for _, offset, topic, *_ in found] == [(0, "invoices"), (1, "invoices")]


async def test_rows_are_on_disk_before_offsets_are_sent_in_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[set[str]] = []

    def look(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, TxnOffsetCommitRequest):
            on_disk.append({row["kind"] for row in rows_of(tmp_path, "ATTEMPT", "RESULT")})
        process(reply)

    consumer = billing(tmp_path)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes) -> bytes:
        return order

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(2)
        inject(monkeypatch, look)
        await t.publish("orders", b"1")
        await t.advance(2)
        monkeypatch.undo()
    assert on_disk == [{"ATTEMPT", "RESULT"}]


async def test_nothing_is_committed_in_a_transaction_whose_rows_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = billing(tmp_path)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes) -> bytes:
        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        return order

    t = TestConsumer(consumer, partitions=1)
    with pytest.raises(FatalError, match="No space left"):
        async with t:
            await t.advance(2)
            await t.publish("orders", b"1")
            await t.advance(5)
    assert t.committed("orders", 0) in (None, 0)
    assert t.records("invoices") == []


async def test_an_aborted_transaction_has_rows_of_results_and_none_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[Request] = []

    def abort_first(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, EndTxnRequest) and message.committed and not aborted:
            aborted.append(message)
            end = EndTxnRequest(
                transactional_id=message.transactional_id,
                producer_id=message.producer_id,
                producer_epoch=message.producer_epoch,
                committed=False,
            )
            # As the coordinator does at the transaction_timeout.
            cluster.handle(0, 0, end, lambda _response: None)
        process(reply)

    consumer = billing(tmp_path)

    @consumer.handler("orders", publish_to="invoices")
    async def bill(order: bytes) -> bytes:
        await asyncio.sleep(0)
        return order

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(2)
        cluster = t._cluster
        inject(monkeypatch, abort_first)
        await t.publish("orders", b"1")
        await t.advance(60)
        assert len(t.records("invoices")) == 1
        monkeypatch.undo()
    found = results_in(tmp_path)
    assert [(partition, offset) for partition, offset, *_ in found] == [(0, 0), (0, 0)]
    assert found[0][-1] < found[1][-1]
    assert [row["offset"] for row in rows_of(tmp_path, "COMMIT")].count(1) == 1
