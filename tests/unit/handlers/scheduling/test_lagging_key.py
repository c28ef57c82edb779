"""A partition with a slow key is revoked from handlers, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer, Record
from asyncrevoke.core.partition.completion_map import decode
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.config import ConsumerOptions

SECONDS = 10.0


def consumer(handled: list[int], **options: Unpack[ConsumerOptions]) -> Consumer:
    """Records of the key "slow" take ten seconds each, the others no time."""
    options["group_id"] = "billing"
    ours = Consumer(**options)

    @ours.handler("orders")
    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await asyncio.sleep(SECONDS)
        handled.append(record.offset)

    return ours


async def revoke_while_one_key_lags(t: TestConsumer, handled: list[int]) -> None:
    """Two slow records are behind the one that runs, which has ended at the end."""
    for number in range(9):
        await t.publish("orders", number, key="slow" if number % 3 == 0 else f"key-{number}")
    assert len(handled) == 6
    await t.revoke(("orders", 0))
    assert t.assignment()
    await t.advance(SECONDS + 1.5)


async def test_a_revoke_takes_no_longer_than_the_handler_that_runs() -> None:
    handled: list[int] = []
    async with TestConsumer(consumer(handled), topics={"orders": 1}) as t:
        await revoke_while_one_key_lags(t, handled)
        assert not t.assignment()
        assert sorted(handled) == [0, 1, 2, 4, 5, 7, 8]
        found = t.committed_offset("orders", 0)
        assert found is not None
        known = decode(found.offset, found.metadata)
        assert known is not None
        assert (found.offset, known.runs) == (3, ((4, 6), (7, 9)))


@pytest.mark.parametrize("options", [{"completion_map": 0}, {"group_protocol": "consumer"}])
async def test_where_the_next_owner_may_read_no_map_the_gap_is_processed(
    options: ConsumerOptions,
) -> None:
    handled: list[int] = []
    async with TestConsumer(consumer(handled, **options), topics={"orders": 1}) as t:
        await revoke_while_one_key_lags(t, handled)
        assert t.assignment()
        await t.advance(2 * SECONDS)
        assert not t.assignment()
        assert sorted(handled) == list(range(9))
        assert t.committed("orders", 0) == 9


async def test_a_gap_is_dropped_if_repeated_records_are_preferred_to_waiting() -> None:
    handled: list[int] = []
    ours = consumer(handled, completion_map=0, revoke_gaps="drop")
    async with TestConsumer(ours, topics={"orders": 1}) as t:
        await revoke_while_one_key_lags(t, handled)
        assert not t.assignment()
        assert t.committed("orders", 0) == 3
