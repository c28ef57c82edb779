"""What a lifespan stores with its state, and what is handled again, are the same records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest

from asyncrevoke import (
    AssignedPartition,
    BatchError,
    Consumer,
    HandlerContext,
    PartitionLostError,
    Record,
    Retry,
    TopicPartition,
)
from asyncrevoke.client.core.partition.completion_map import encode
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

ZERO = TopicPartition("orders", 0)
SECONDS = 10.0
NINE = list(range(9))
Stored: TypeAlias = Literal["offset_to_commit", "progress"]

each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])
each_stored = pytest.mark.parametrize("stored", ["offset_to_commit", "progress"])


class Table:
    """Counted offsets, and where they end, stored together as the partition's lifespan exits."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.offsets: list[int] = []
        self.begins = 0, ""
        self.entered_at: list[int] = []
        self.exits = 0
        self.lost = 0
        # How often each record is handled, whatever becomes of the state.
        self.handled: list[int] = []
        # The offset of a record that fails, and whether it still does.
        self.poison: int | None = None

    def consumer(self, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Records of the key "slow" take ten seconds each, the others no time."""
        options["group_id"] = "counts"
        ours = Consumer(**options)
        ours.partition_lifespan(self.lifespan)

        @ours.handler("orders", retry=Retry(attempts=9, backoff=1000.0, max_backoff=1000.0))
        async def count(record: Record, context: HandlerContext[None, None, list[int]]) -> None:
            self.handled.append(record.offset)
            if record.offset == self.poison:
                raise ValueError("poison")
            if record.key == b"slow":
                await asyncio.sleep(SECONDS)
            context.partition_state.append(record.offset)

        return ours

    async def lifespan(self, partition: AssignedPartition) -> AsyncGenerator[list[int]]:
        offsets = list(self.offsets)
        partition.seek(*self.begins)
        self.entered_at.append(partition.position)
        try:
            yield offsets
            if self.stored == "progress":
                begins = partition.progress
            else:
                begins = partition.offset_to_commit, ""
        except PartitionLostError:
            self.lost += 1
            raise
        self.offsets, self.begins = offsets, begins
        self.exits += 1


async def publish(t: TestConsumer, count: int = 9) -> None:
    """Every third record is of a slow key."""
    for number in range(count):
        key = "slow" if number % 3 == 0 else f"key-{number}"
        await t.publish("orders", number, key=key, partition=0)


async def released(t: TestConsumer, most: float = 100.0) -> float:
    """Let time pass until the consumer owns nothing; returns the seconds."""
    began = t.time
    while t.assignment():
        assert t.time - began < most
        await t.advance(0.5)
    return t.time - began


@each_protocol
@each_stored
async def test_a_revocation_handles_the_gap_of_a_partition_with_a_lifespan(
    stored: Stored, protocol: Literal["classic", "consumer"]
) -> None:
    """Also where all members read completion maps: its state may end at an offset alone."""
    table = Table(stored)
    async with TestConsumer(table.consumer(group_protocol=protocol), partitions=1) as t:
        await publish(t)
        await t.revoke(ZERO)
        assert 3 * SECONDS - 1 < await released(t) < 3 * SECONDS + 2
        assert table.begins == (9, "")
        assert sorted(table.offsets) == NINE
        await t.give(ZERO)
        await t.advance(1)
    assert sorted(table.handled) == sorted(table.offsets) == NINE


@each_protocol
@each_stored
async def test_a_stop_handles_the_gap_of_a_partition_with_a_lifespan(
    stored: Stored, protocol: Literal["classic", "consumer"]
) -> None:
    table = Table(stored)
    ours = table.consumer(group_protocol=protocol, close_timeout=60.0)
    async with TestConsumer(ours, partitions=1) as t:
        await publish(t)
        ours.stop()
        await released(t)
        await t.crash()
        await t.restart(table.consumer(group_protocol=protocol))
        await t.advance(1)
    assert table.entered_at == [0, 9]
    assert sorted(table.handled) == sorted(table.offsets) == NINE


@each_protocol
@pytest.mark.parametrize("ends", ["revoked", "stopped"])
async def test_a_dropped_gap_is_all_that_the_next_owner_handles_of_stored_progress(
    ends: str, protocol: Literal["classic", "consumer"]
) -> None:
    options: ConsumerOptions = {"group_protocol": protocol, "revoke_gaps": "drop"}
    table = Table("progress")
    ours = table.consumer(**options)
    async with TestConsumer(ours, partitions=1) as t:
        await publish(t)
        if ends == "revoked":
            await t.revoke(ZERO)
        else:
            ours.stop()
        assert await released(t) < SECONDS + 2
        assert sorted(table.offsets) == [0, 1, 2, 4, 5, 7, 8]
        assert table.begins[0] == 3
        if ends == "revoked":
            await t.give(ZERO)
        else:
            await t.crash()
            await t.restart(table.consumer(**options))
        await t.advance(2 * SECONDS + 1)
        assert t.committed("orders", 0) == 9
    assert sorted(table.handled) == sorted(table.offsets) == NINE
    assert table.begins == (9, "")


@each_protocol
async def test_an_offset_that_does_not_say_what_is_done_is_not_stored(
    protocol: Literal["classic", "consumer"],
) -> None:
    """The partition is lost with its state, and handled again; the consumer goes on."""
    table = Table("offset_to_commit")
    ours = table.consumer(group_protocol=protocol, revoke_gaps="drop")
    async with TestConsumer(ours, partitions=1) as t:
        await publish(t)
        await t.revoke(ZERO)
        await released(t)
        assert (table.lost, table.exits, table.begins) == (1, 0, (0, ""))
        await t.give(ZERO)
        await t.advance(4 * SECONDS)
        assert t.committed("orders", 0) == 9
    assert sorted(table.offsets) == NINE
    assert (table.lost, table.exits) == (1, 1)


async def test_an_offset_does_not_replace_stored_progress_whose_records_lie_after_it() -> None:
    """Offsets 7 and 8 are in the state that was loaded, and 6 is not handled yet."""
    table = Table("progress")
    async with TestConsumer(table.consumer(revoke_gaps="drop"), partitions=1) as t:
        await publish(t)
        await t.revoke(ZERO)
        await released(t)
        stored = table.begins
        await t.give(ZERO)
        await t.revoke(ZERO)
        table.stored = "offset_to_commit"
        await released(t)
        assert table.handled[-1] == 3
        assert (table.lost, table.exits, table.begins) == (1, 1, stored)
        await t.give(ZERO)
        await t.advance(2 * SECONDS + 1)
    assert sorted(table.offsets) == NINE


@each_stored
async def test_a_failed_record_is_handled_again_and_later_ones_are_not_counted_twice(
    stored: Stored,
) -> None:
    """It waits for its next attempt when the partition is revoked, which ends that."""
    table = Table(stored)
    table.poison = 1
    async with TestConsumer(table.consumer(), partitions=1) as t:
        for number in range(4):
            await t.publish("orders", number, key=f"key-{number}", partition=0)
        await t.revoke(ZERO)
        await released(t)
        table.poison = None
        await t.give(ZERO)
        await t.advance(1)
    assert sorted(table.offsets) == [0, 1, 2, 3]
    if stored == "progress":
        assert sorted(table.handled) == [0, 1, 1, 2, 3], "the poisoned one twice"
        assert table.lost == 0


async def test_a_gap_is_dropped_before_the_deadline_of_its_revocation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise the partition would be lost with its state, again and again."""
    table = Table("progress")
    async with TestConsumer(table.consumer(rebalance_timeout=24.0), partitions=1) as t:
        await publish(t, 18)
        await t.revoke(ZERO)
        assert await released(t) < 24
        assert (table.lost, table.exits) == (0, 1)
        assert "deadline is near; gaps dropped" in caplog.text
        await t.give(ZERO)
        await t.advance(6 * SECONDS)
    assert sorted(table.handled) == sorted(table.offsets) == list(range(18))


async def test_the_state_of_a_lost_partition_is_not_stored() -> None:
    table = Table("progress")
    async with TestConsumer(table.consumer(), partitions=1) as t:
        await publish(t)
        await t.lose(ZERO)
        assert (table.lost, table.begins) == (1, (0, ""))
        await t.give(ZERO)
        await t.advance(3 * SECONDS + 1)
    assert sorted(table.offsets) == NINE


async def test_progress_contains_the_records_of_a_batch_that_have_not_failed() -> None:
    table = Table("progress")
    ours = Consumer(group_id="counts")
    ours.partition_lifespan(table.lifespan)
    table.poison = 1

    @ours.handler(
        "orders",
        batch=True,
        max_wait=0.1,
        retry=Retry(attempts=9, backoff=1000.0, max_backoff=1000.0),
    )
    async def count(records: list[Record], context: HandlerContext[None, None, list[int]]) -> None:
        good = [record for record in records if record.offset != table.poison]
        context.partition_state.extend(record.offset for record in good)
        if len(good) < len(records):
            failed = [number for number, each in enumerate(records) if each.offset == table.poison]
            raise BatchError({number: ValueError("poison") for number in failed})

    async with TestConsumer(ours, partitions=1) as t:
        await publish(t, 4)
        await t.advance(1)
        await t.revoke(ZERO)
        await released(t)
        assert (table.begins[0], table.offsets) == (1, [0, 2, 3])
        table.poison = None
        await t.give(ZERO)
        await t.advance(1)
    assert sorted(table.offsets) == [0, 1, 2, 3]


async def test_records_that_the_log_does_not_have_are_not_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with the completion map of a commit: the topic may have been made anew."""
    table = Table("progress")
    ours = table.consumer()
    async with TestConsumer(ours, partitions=1) as t:
        await publish(t)
        ours.stop()
        await released(t)
        await t.crash()
        table.offsets = []
        table.begins = 1, encode(1, [(2, 4), (100, 200)], 0, 512).metadata
        await t.restart(table.consumer())
        await t.advance(3 * SECONDS)
    assert sorted(table.offsets) == NINE[1:]
    assert "completion map ignored" in caplog.text


@pytest.mark.parametrize("completion_map", ["ar1", "nonsense", "of another offset"])
async def test_a_completion_map_of_another_offset_is_refused(completion_map: str) -> None:
    table = Table("progress")
    if completion_map == "of another offset":
        completion_map = encode(7, [(8, 9)], 0, 512).metadata
    table.begins = 3, completion_map
    with pytest.raises(ValueError, match=r"none of offset 3: .* partition\.progress"):
        async with TestConsumer(table.consumer(), partitions=1):
            pass
