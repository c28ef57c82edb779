"""Revocations, losses, crashes and errors of brokers, with processing="exactly_once"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke import Consumer
from asyncrevoke.client.producing.requests import (
    ProduceRequest,
    produce_response,
    produced_batches,
)
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    EntityResponse,
    ErrorCode,
    LeaveGroupRequest,
)
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.config import GroupProtocol
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.testing.fake_kafka.group_state import Reply

    # Gets a request, its reply, and what processes it.
    Fault = Callable[[Request, Reply, Callable[[Reply], None]], None]

PROTOCOLS: list[GroupProtocol] = ["classic", "consumer"]
# The transaction with the offsets at which the consumer begins is committed before.
AFTER_FIRST_COMMIT = 100.0


def values(t: TestConsumer, topic: str = "invoices") -> list[bytes | None]:
    return sorted((record.value for record in t.records(topic)), key=str)


def billing(
    seconds: float = 0.0,
    *,
    transaction_interval: float = 60.0,
    protocol: GroupProtocol = "classic",
    dead_letter: str | None = None,
    transaction_timeout: float = 10.0,
) -> Consumer:
    consumer = Consumer(
        group_id="g",
        group_protocol=protocol,
        processing="exactly_once",
        transaction_interval=transaction_interval,
        transaction_timeout=transaction_timeout,
    )

    @consumer.handler("orders", publish_to="invoices", dead_letter=dead_letter)
    async def bill(value: bytes) -> bytes:
        await asyncio.sleep(seconds)
        return value

    return consumer


def inject(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Let ``fault`` see all requests to the simulated broker."""
    inner = Cluster.handle

    def handle(cluster: Cluster, broker: int, client: int, message: Request, reply: Reply) -> None:
        fault(message, reply, lambda to: inner(cluster, broker, client, message, to))

    monkeypatch.setattr(Cluster, "handle", handle)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_revocation_waits_for_the_transaction_of_the_records_in_flight(
    protocol: GroupProtocol,
) -> None:
    async with TestConsumer(billing(30, protocol=protocol), partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"1", partition=0)
        await t.revoke(("orders", 0))
        await t.advance(20)
        assert ("orders", 0) in t.assignment()
        assert (values(t), t.committed("orders", 0)) == ([], 0)
        await t.advance(15)
        assert ("orders", 0) not in t.assignment()
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_partition_is_not_released_before_its_transaction_is_committed(
    monkeypatch: pytest.MonkeyPatch, protocol: GroupProtocol
) -> None:
    delayed: list[Callable[[], None]] = []

    def delay_the_end(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, EndTxnRequest):
            delayed.append(lambda: process(reply))
        else:
            process(reply)

    async with TestConsumer(billing(protocol=protocol), partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, delay_the_end)
        await t.publish("orders", b"1", partition=0)
        await t.revoke(("orders", 0))
        await t.advance(2)
        (end,) = delayed
        assert ("orders", 0) in t.assignment()
        assert values(t) == []
        end()
        monkeypatch.undo()
        await t.advance(5)
        assert ("orders", 0) not in t.assignment()
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_results_of_a_lost_partition_never_appear(protocol: GroupProtocol) -> None:
    async with TestConsumer(billing(protocol=protocol), partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"lost", partition=0)
        await t.publish("orders", b"kept", partition=1)
        await t.lose(("orders", 0))
        await t.advance(200)
        # Both partitions were lost; the second one is assigned again, and its record handled again.
        assert len(t.calls) == 3
        assert (values(t), t.committed("orders", 1)) == ([b"kept"], 1)
        assert t.committed("orders", 0) == 0
        await t.give(("orders", 0))
        await t.advance(200)
        assert (values(t), t.committed("orders", 0)) == ([b"kept", b"lost"], 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_partition_that_is_lost_during_the_transaction_is_left_out(
    monkeypatch: pytest.MonkeyPatch, protocol: GroupProtocol
) -> None:
    delayed: list[Callable[[], None]] = []

    def delay_offsets(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, TxnOffsetCommitRequest):
            delayed.append(lambda: process(reply))
        else:
            process(reply)

    consumer = billing(transaction_interval=1, protocol=protocol)
    async with TestConsumer(consumer, partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, delay_offsets)
        await t.publish("orders", b"lost", partition=0)
        await t.publish("orders", b"kept", partition=1)
        await t.advance(1)
        (commit_offsets,) = delayed
        monkeypatch.undo()
        await t.lose(("orders", 0))
        commit_offsets()
        await t.advance(60)
        assert (values(t), t.committed("orders", 1)) == ([b"kept"], 1)
        assert t.committed("orders", 0) == 0


async def test_a_crash_before_the_transaction_publishes_and_commits_nothing() -> None:
    consumer = billing()
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        await t.publish("orders", b"1")
        assert [call.outcome for call in t.calls] == ["ok"]
        await t.crash()
        await t.advance(100)
        assert (values(t), t.committed("orders", 0)) == ([], 0)
        await t.restart(consumer)
        await t.advance(100)
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("lost", [TxnOffsetCommitRequest, EndTxnRequest])
async def test_a_crash_within_the_transaction_leaves_nothing_half_visible(
    monkeypatch: pytest.MonkeyPatch, lost: type[Request], protocol: GroupProtocol
) -> None:
    dropped: list[Request] = []

    def drop(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, lost):
            dropped.append(message)
        else:
            process(reply)

    consumer = billing(transaction_interval=1, protocol=protocol)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, drop)
        await t.publish("orders", b"1")
        await t.advance(2)
        assert len(dropped) == 1
        await t.crash()
        monkeypatch.undo()
        assert (values(t), t.committed("orders", 0)) == ([], 0)
        await t.restart(consumer)
        # The next owner waits until the coordinator has aborted the transaction.
        await t.advance(20)
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


async def test_a_new_consumer_waits_for_the_offsets_of_the_open_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if not isinstance(message, EndTxnRequest):
            process(reply)

    consumer = billing(transaction_interval=1)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, drop)
        began = t.time
        await t.publish("orders", b"1")
        await t.advance(2)
        await t.crash()
        monkeypatch.undo()
        await t.restart(consumer)
        # The default transaction_timeout.
        assert 10 < t.time - began < 15
        await t.advance(2)
        assert len(t.calls) == 2


async def test_a_result_is_published_once_if_the_response_to_its_commit_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Request] = []

    def lose_first(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, EndTxnRequest) and not lost:
            lost.append(message)
            process(lambda _response: None)
        else:
            process(reply)

    async with TestConsumer(billing(transaction_interval=1), partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, lose_first)
        await t.publish("orders", b"1")
        await t.advance(60)
        await t.publish("orders", b"2")
        await t.advance(60)
        assert len(lost) == 1
        assert (values(t), t.committed("orders", 0)) == ([b"1", b"2"], 2)


async def test_a_batch_that_is_sent_again_is_in_the_transaction_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Request] = []

    def lose_first(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, ProduceRequest) and not lost:
            lost.append(message)
            process(lambda _response: None)
        else:
            process(reply)

    async with TestConsumer(billing(transaction_interval=1), partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, lose_first)
        await t.publish("orders", b"1")
        await t.advance(120)
        assert len(lost) == 1
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


async def test_a_record_whose_result_the_broker_refuses_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, ProduceRequest):
            partitions = [partition for partition, _ in produced_batches(message)]
            if any(partition.topic == "invoices" for partition in partitions):
                errors = dict.fromkeys(partitions, ErrorCode.topic_authorization_failed)
                reply(EntityResponse(entity=produce_response(errors)))
                return
        process(reply)

    consumer = billing(transaction_interval=1, dead_letter="failed")
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, refuse)
        await t.publish("orders", b"1")
        await t.advance(10)
        assert values(t) == []
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"1"], 1)


async def test_results_are_published_once_if_the_broker_rejects_the_first_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rejected: list[Request] = []

    def outdate_first(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, EndTxnRequest) and message.committed and not rejected:
            rejected.append(message)
            aborting = EndTxnRequest(
                transactional_id=message.transactional_id,
                producer_id=message.producer_id,
                producer_epoch=message.producer_epoch,
                committed=False,
            )
            # As the coordinator does at the transaction_timeout.
            cluster.handle(0, 0, aborting, lambda _response: None)
        process(reply)

    async with TestConsumer(billing(transaction_interval=1), partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        cluster = t._cluster
        inject(monkeypatch, outdate_first)
        await t.publish("orders", b"1")
        await t.advance(60)
        assert len(rejected) == 1
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)


async def test_transactions_are_short_enough_for_a_broker_that_needs_a_second_for_each_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    def be_slow(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, ProduceRequest):
            batches = [DefaultRecordBatch(data) for _, data in produced_batches(message)]
            written.append(sum(1 for batch in batches for _ in batch))
            loop.call_later(written[-1], process, reply)
        else:
            process(reply)

    async with TestConsumer(billing(transaction_interval=1), partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        loop = asyncio.get_running_loop()
        inject(monkeypatch, be_slow)
        for number in range(64):
            await t.publish("orders", b"%d" % number)
        await t.advance(600)
        assert sorted(int(value or b"") for value in values(t)) == list(range(64))
        assert t.committed("orders", 0) == 64
        assert len(t.calls) == 64
        assert max(written) > 9, "the first transaction takes longer than transaction_timeout"


async def test_a_new_member_epoch_within_a_transaction_does_not_abort_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delayed: list[Callable[[], None]] = []
    ends: list[bool] = []

    def delay_the_first_offsets(
        message: Request, reply: Reply, process: Callable[[Reply], None]
    ) -> None:
        if isinstance(message, EndTxnRequest):
            ends.append(message.committed)
        if isinstance(message, TxnOffsetCommitRequest) and not delayed:
            delayed.append(lambda: process(reply))
        else:
            process(reply)

    consumer = billing(transaction_interval=1, protocol="consumer")
    async with TestConsumer(consumer, partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, delay_the_first_offsets)
        await t.publish("orders", b"1", partition=0)
        await t.advance(1)
        await t.revoke(("orders", 1))
        await t.advance(6)
        (commit_offsets,) = delayed
        commit_offsets()
        await t.advance(60)
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)
        assert ends == [True]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("aborts", [True, False])
async def test_closing_at_its_deadline_aborts_the_transaction_before_it_leaves_the_group(
    monkeypatch: pytest.MonkeyPatch, protocol: GroupProtocol, aborts: bool
) -> None:
    ends: list[tuple[str, float]] = []

    def never_acknowledge(message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        match message:
            case ProduceRequest():
                process(lambda _response: None)
            case EndTxnRequest(committed=False):
                ends.append(("aborted", t.time))
                if aborts:
                    process(reply)
            case LeaveGroupRequest() | ConsumerGroupHeartbeatRequest(member_epoch=-1):
                ends.append(("left", t.time))
                process(reply)
            case _:
                process(reply)

    consumer = billing(transaction_interval=1, protocol=protocol, transaction_timeout=60)
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        inject(monkeypatch, never_acknowledge)
        await t.publish("orders", b"1")
        await t.advance(1)
    assert [end for end, _ in ends] == ["aborted", "left"]
    assert ends[1][1] - ends[0][1] == pytest.approx(0.0 if aborts else 1.25, abs=0.1)
