"""What follows from the end of a transaction, with processing="exactly_once"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.producing.transactions.transaction_session import ScriptedSession

from asyncrevoke.client.errors import FatalError, ProducerFencedError, TransactionError
from asyncrevoke.client.producing.exactly_once.finished_records import ResultTarget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.timeout(20)
TARGET = ResultTarget("results", "handle")
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
