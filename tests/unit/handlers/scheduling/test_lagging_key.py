"""A partition with a slow key is revoked from handlers, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import pytest

from asyncrevoke import Consumer, Record
from asyncrevoke.client.core.partition.completion_map import decode
from asyncrevoke.handlers.matching import by_header
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

# What is committed, and what is known to be done after it.
Completed: TypeAlias = "tuple[int, tuple[tuple[int, int], ...]] | None"

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


@pytest.mark.parametrize("ends", ["revoke", "stop"])
@pytest.mark.parametrize("options", [{"completion_map": 0}, {}])
async def test_collected_records_of_a_batch_handler_are_a_gap_before_skipped_ones(
    ends: str, options: ConsumerOptions
) -> None:
    """Offsets 1 and 2 are done, since the handler does not want them; 0 waits for its batch."""
    batches: list[list[int]] = []
    options["group_id"] = "billing"
    ours = Consumer(**options)
    wanted = by_header("type", "created")

    @ours.handler("orders", where=wanted, unmatched="skip", batch=True, max_wait=60)
    async def handle(records: list[Record]) -> None:
        batches.append([record.offset for record in records])

    async with TestConsumer(ours, topics={"orders": 1}) as t:
        for kind in ("created", "other", "other", "created"):
            await t.publish("orders", 1, headers={"type": kind.encode()})
        if ends == "stop":
            ours.stop()
        else:
            await t.revoke(("orders", 0))
        await t.advance(2)
        assert not t.assignment()
        found = t.committed_offset("orders", 0)
        assert found is not None
        if options.get("completion_map") == 0:
            assert (batches, found.offset) == ([[0]], 3), "and 3 is left to the next owner"
        else:
            known = decode(found.offset, found.metadata)
            assert known is not None
            assert (batches, found.offset, known.runs) == ([], 0, ((1, 3),))


# --- a stop -------------------------------------------------------------------------------------


async def stop_while_one_key_lags(ours: Consumer, handled: list[int]) -> tuple[float, Completed]:
    """Stop with nine records, of which six are handled and two wait for the slow one that runs.

    Returns how many seconds closing has taken, and what is committed.
    """
    async with TestConsumer(ours, topics={"orders": 1}) as t:
        for number in range(9):
            await t.publish("orders", number, key="slow" if number % 3 == 0 else f"key-{number}")
        assert len(handled) == 6
        stopped_at = t.time
        ours.stop()
        while t.assignment():
            assert t.time < 100
            await t.advance(0.5)
        seconds = t.time - stopped_at
        found = t.committed_offset("orders", 0)
        if found is None:
            return seconds, None
        known = decode(found.offset, found.metadata)
        return seconds, (found.offset, () if known is None else known.runs)


async def test_a_stop_takes_no_longer_than_the_handler_that_runs_if_all_members_read_maps() -> None:
    handled: list[int] = []
    seconds, completed = await stop_while_one_key_lags(consumer(handled), handled)
    assert seconds < SECONDS + 1
    assert completed == (3, ((4, 6), (7, 9)))


@pytest.mark.parametrize("options", [{"completion_map": 0}, {"group_protocol": "consumer"}])
async def test_a_stop_handles_the_gap_that_a_revocation_would_handle(
    options: ConsumerOptions,
) -> None:
    handled: list[int] = []
    options["close_timeout"] = 60.0
    ours = consumer(handled, **options)
    seconds, completed = await stop_while_one_key_lags(ours, handled)
    assert 3 * SECONDS - 1 < seconds < 3 * SECONDS + 2
    assert sorted(handled) == list(range(9))
    assert completed == (9, ())


async def test_a_stop_drops_a_gap_in_time_for_the_handler_that_runs_to_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second slow record starts after 10 s and ends in time; the third would not."""
    handled: list[int] = []
    ours = consumer(handled, close_timeout=26.0, group_protocol="consumer")
    seconds, completed = await stop_while_one_key_lags(ours, handled)
    assert sorted(handled) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert seconds < 26
    assert completed == (6, ((7, 9),)), "our own members need not repeat what is done"
    assert "deadline is near; gaps dropped, records may be processed again" in caplog.text


async def test_a_stop_drops_the_gap_if_repeated_records_are_preferred_to_waiting() -> None:
    handled: list[int] = []
    ours = consumer(handled, completion_map=0, revoke_gaps="drop")
    seconds, _ = await stop_while_one_key_lags(ours, handled)
    assert seconds < SECONDS + 1
    assert 3 not in handled


async def test_a_failed_handler_stops_without_the_gap() -> None:
    handled: list[int] = []
    ours = consumer(handled, completion_map=0, close_timeout=60.0)

    @ours.handler("failing", on_error="stop")
    async def fail(record: Record) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with TestConsumer(ours, topics={"orders": 1, "failing": 1}) as t:
            for number in range(4):
                await t.publish("orders", number, key="slow" if number % 3 == 0 else "fast")
            await t.publish("failing", 1)
            await t.advance(SECONDS + 2)
    assert sorted(handled) == [0, 1, 2]


async def test_a_gap_is_dropped_if_repeated_records_are_preferred_to_waiting() -> None:
    handled: list[int] = []
    ours = consumer(handled, completion_map=0, revoke_gaps="drop")
    async with TestConsumer(ours, topics={"orders": 1}) as t:
        await revoke_while_one_key_lags(t, handled)
        assert not t.assignment()
        assert t.committed("orders", 0) == 3
