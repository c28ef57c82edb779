"""What follows from the end of a transaction, with processing="exactly_once"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.core.commit.scripted_commits import A, B
from unit.producing.transactions.transaction_session import ScriptedSession

from asyncrevoke.client.errors import (
    FatalError,
    ProducerFencedError,
    PublishError,
    TransactionError,
    UnsupportedVersionError,
)
from asyncrevoke.client.model import Record
from asyncrevoke.client.producing.exactly_once.finished_records import ResultTarget
from asyncrevoke.client.producing.transactions.group_offsets import OffsetsRejectedError
from asyncrevoke.client.producing.transactions.transaction import TransactionTimedOutError
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

pytestmark = pytest.mark.timeout(20)


def fail(_records: Sequence[Record], error: PublishError) -> None:
    raise error


TARGET = ResultTarget("results", "handle", fail)
IN_DOUBT = TransactionError("it is not known", in_doubt=True)


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedSession]:
    session = ScriptedSession(monkeypatch, 3)
    yield session
    await session.end()


async def until_written(session: ScriptedSession, transactions: int) -> None:
    for _ in range(500):
        await asyncio.sleep(0)
    assert sum(len(producer.written) for producer in session.producers) == transactions


def finish(session: ScriptedSession, *offsets: int) -> None:
    for offset in offsets:
        session.transactions.add_result(session.record(offset), TARGET, b"%d" % offset)
    session.call(session.committer.flush)


@pytest.mark.parametrize("held", [0, 3])
async def test_offsets_say_how_a_transaction_ended_whose_producer_is_fenced_in_doubt(
    session: ScriptedSession, held: int
) -> None:
    session.held = held
    first = session.producers[0]
    first.commits, first.settles = [IN_DOUBT], [ProducerFencedError("fenced")]
    session.transactions.start()
    finish(session, 0, 1, 2)
    await until_written(session, 1)
    if not held:
        session.retry()
        session.carry_out()
        await until_written(session, 2)
        assert session.producers[1].written == [[b"0", b"1", b"2"]], "done again with another id"
    assert session.failure is None
    assert first.closed, "its transactional id is given up"
    assert session.a.committed_offset == 3
    assert session.transactions.waiting == 0


async def test_a_producer_that_fails_in_doubt_ends_the_consumer(session: ScriptedSession) -> None:
    first = session.producers[0]
    first.commits, first.fatal_error = [IN_DOUBT], TransactionError("not authorized")
    session.transactions.start()
    finish(session, 0)
    await until_written(session, 1)
    assert isinstance(session.failure, FatalError)


async def test_a_fenced_producer_of_a_static_member_ends_the_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = ScriptedSession(monkeypatch, 3, group_instance_id="one")
    session.producers[0].commits = [IN_DOUBT]
    session.producers[0].settles = [ProducerFencedError("fenced")]
    session.transactions.start()
    finish(session, 0)
    await until_written(session, 1)
    assert isinstance(session.failure, ProducerFencedError)
    await session.end()


async def test_records_beyond_an_abandoned_one_do_not_keep_the_handlers_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = ScriptedSession(monkeypatch, 3, maps_are_read=False)
    session.transactions.start()
    finish(session, 1, 2)
    async with asyncio.timeout(5):
        await session.transactions.flush()
    assert session.turns < 10, "it does not begin transactions without an end"
    assert session.transactions.waiting == 2
    await session.end()


async def test_a_batch_is_not_committed_while_a_commit_of_its_partition_has_to_wait(
    session: ScriptedSession,
) -> None:
    batch = session.return_batch(session.b, 2)
    session.producers[0].commits = [
        OffsetsRejectedError("billing", {B: ErrorCode.topic_authorization_failed})
    ]
    session.transactions.start()

    async def block() -> None:
        async with batch:
            batch.publish("results", b"r")

    running = asyncio.create_task(block())
    await until_written(session, 1)
    session.retry()
    session.carry_out()
    await until_written(session, 1)
    running.cancel()
    await asyncio.wait((running,))


async def test_a_batch_of_a_partition_that_was_lost_and_assigned_again_leaves_its_results_out(
    session: ScriptedSession,
) -> None:
    batch = session.return_batch(session.b, 2)
    record = Record(*B, 0, 0, 0, None, None)
    session.transactions.start()
    async with batch:
        batch.publish("results", b"r", record=record)
        session.revocation.lose(1.0, [session.b], "taken away")
        (again,) = session.assignment.add([B])
        session.assignment.set_position(again, 0)
    assert session.producers[0].written in ([], [[]])
    assert batch.lost == {B}


async def test_a_cancelled_block_whose_commit_was_requested_does_not_return_its_batch_again(
    session: ScriptedSession,
) -> None:
    batch = session.return_batch(session.b, 2)
    first = session.producers[0]
    first.let_go.clear()
    session.transactions.start()

    async def block() -> None:
        async with batch:
            batch.publish("results", b"r")

    running = asyncio.create_task(block())
    await first.is_held.wait()
    running.cancel()
    await asyncio.sleep(0)
    first.let_go.set()
    await asyncio.wait((running,))
    assert running.cancelled()
    assert first.written == [[b"r"]]
    assert session.rewound == []
    assert session.b.committed_offset == 2


async def test_a_block_that_is_cancelled_twice_in_its_commit_ends_the_consumer(
    session: ScriptedSession,
) -> None:
    batch = session.return_batch(session.b, 2)
    first = session.producers[0]
    first.let_go.clear()
    session.transactions.start()

    async def block() -> None:
        async with batch:
            batch.publish("results", b"r")

    running = asyncio.create_task(block())
    await first.is_held.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,))
    first.let_go.set()
    assert isinstance(session.failure, TransactionError)
    assert session.rewound == []


async def test_a_broker_without_offsets_in_transactions_ends_the_consumer(
    session: ScriptedSession,
) -> None:
    session.producers[0].commits = [UnsupportedVersionError("TxnOffsetCommit needs version 3")]
    session.transactions.start()
    finish(session, 0)
    await until_written(session, 1)
    assert isinstance(session.failure, UnsupportedVersionError)


async def test_records_from_before_a_seek_are_written_or_dropped_in_any_order_of_their_ends(
    session: ScriptedSession,
) -> None:
    session.transactions.start()
    session.transactions.add_result(session.record(2), TARGET, b"2")
    session.transactions.add_result(session.record(0), TARGET, b"0")
    session.assignment.set_position(session.a, 1)
    session.a.require_commit()
    session.call(session.committer.flush)
    await until_written(session, 1)
    assert session.failure is None
    assert session.producers[0].written == [[b"0"]]
    assert session.abandoned == [2]


async def test_a_transaction_that_was_not_written_in_time_is_halved_until_one_is(
    session: ScriptedSession,
) -> None:
    late = TransactionTimedOutError("not committed in time")
    producer = session.producers[0]
    producer.commits = [late, late]
    session.transactions.start()
    finish(session, 0, 1, 2)
    await until_written(session, 1)
    for written in (2, 3):
        session.retry()
        session.carry_out()
        await until_written(session, written)
    assert producer.written == [[b"0", b"1", b"2"], [b"0"], [b"0"]]
    session.call(session.committer.flush)
    await until_written(session, 4)
    assert producer.written[-1] == [b"1", b"2"], "after a short commit it takes twice as many"


async def test_a_batch_that_is_never_written_in_time_fails_after_three_transactions(
    session: ScriptedSession,
) -> None:
    batch = session.return_batch(session.b, 2)
    producer = session.producers[0]
    producer.commits = [TransactionTimedOutError("not committed in time")] * 3
    session.transactions.start()

    async def block() -> None:
        async with batch:
            batch.publish("results", b"of the batch")

    task = asyncio.create_task(block())
    for written in (1, 2, 3):
        await until_written(session, written)
        if written < 3:
            session.retry()
            session.carry_out()
    with pytest.raises(TransactionTimedOutError):
        await task
    assert session.rewound == [0], "the next step returns the batch again"


async def test_a_batch_takes_at_most_32_mib(session: ScriptedSession) -> None:
    batch = session.return_batch(session.b, 2)
    async with batch:
        for _ in range(32):
            batch.publish("results", bytes(1024 * 1024))
        with pytest.raises(PublishError, match="at most 33554432 bytes"):
            batch.publish("results", bytes(1024 * 1024))
        session.transactions.start()
    assert len(session.producers[0].written[0]) == 32


async def test_finished_records_without_room_in_the_map_do_not_begin_a_transaction_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = ScriptedSession(monkeypatch, 20_001, maps_are_read=False, max_in_flight=30_000)
    session.transactions.start()
    finish(session, *range(1, 20_000))
    for _ in range(20):
        await asyncio.sleep(0)
    session.turns = 0
    session.transactions.add_result(session.record(20_000), TARGET, b"one more")
    for _ in range(20):
        await asyncio.sleep(0)
    assert session.turns == 0, "it waits for transaction_interval"
    await session.end()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_metadata_says_how_a_transaction_ended_that_changes_no_offset(
    session: ScriptedSession, is_committed: bool
) -> None:
    session.transactions.start()
    for offset in range(3):
        session.transactions.add_result(session.record(offset), TARGET, b"%d" % offset)
    session.assignment.set_position(session.a, 3)
    session.a.set_committed(3, "")
    session.held, session.held_metadata = 3, "." if is_committed else ""
    producer = session.producers[0]
    producer.commits = [IN_DOUBT]
    session.call(session.committer.flush)
    await until_written(session, 1)
    session.retry()
    session.carry_out()
    await until_written(session, 1 if is_committed else 2)
    assert producer.offsets[0] == {A: 3}
    assert session.transactions.waiting == 0
