"""``Consumer.arrow_batches()`` in virtual time: the rules of a loop over batches, in columns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import ConfigError, Consumer, TopicPartition
from asyncrevoke.testing import TestConsumer

pytest.importorskip("pyarrow", reason="needs the extra arrow")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke import ArrowBatch


def offsets(batch: ArrowBatch) -> list[int]:
    found: list[int] = batch.records.column("offset").to_pylist()
    return found


async def publish(t: TestConsumer, count: int, partition: int = 0) -> None:
    for number in range(count):
        await t.publish("orders", f"{number}", key=b"k", partition=partition)


async def test_a_step_has_the_columns_and_the_next_one_commits_it() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=2) as t:
        await publish(t, 3)
        await publish(t, 2, partition=1)
        await t.advance(1)
        batches = consumer.arrow_batches(["key", "value", "partition", "offset"])
        first = await anext(batches)
        assert sorted(
            zip(first.records.column("partition").to_pylist(), offsets(first), strict=True)
        ) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        assert first.records.schema.names == ["key", "value", "partition", "offset"]
        assert t.committed("orders", 0) == 0
        await publish(t, 1)
        await t.advance(1)
        records, to_be_revoked, lost = await anext(batches)
        assert records.column("offset").to_pylist() == [3]
        assert not to_be_revoked
        assert not lost
        await t.advance(10)
        assert [t.committed("orders", number) for number in range(2)] == [3, 2]


async def test_max_records_bounds_a_step() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 10)
        await t.advance(1)
        batches = consumer.arrow_batches(["offset"], max_records=4)
        assert [offsets(await anext(batches)) for _ in range(3)] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9],
        ]


async def test_a_step_waits_max_wait_for_more_records_but_not_when_it_has_all() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        batches = consumer.arrow_batches(["offset"], max_records=5, max_wait=2.0)
        waiting = asyncio.ensure_future(anext(batches))
        await publish(t, 2)
        await t.advance(1.0)
        assert not waiting.done()
        await publish(t, 1)
        await t.advance(1.5)
        assert offsets(await waiting) == [0, 1, 2]
        waiting = asyncio.ensure_future(anext(batches))
        await publish(t, 5)
        await t.advance(0.5)
        assert waiting.done()
        assert offsets(await waiting) == [3, 4, 5, 6, 7]


async def test_a_revocation_ends_the_wait() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        batches = consumer.arrow_batches(["offset"], max_wait=60.0)
        waiting = asyncio.ensure_future(anext(batches))
        await publish(t, 2)
        await t.advance(1.0)
        assert not waiting.done()
        revoking = asyncio.ensure_future(t.revoke(("orders", 0)))
        await t.advance(1.0)
        batch = await waiting
        assert batch.to_be_revoked == {TopicPartition("orders", 0)}
        after = asyncio.ensure_future(anext(batches))
        await t.advance(1.0)
        await revoking
        after.cancel()
        await asyncio.wait([after])
        assert t.committed("orders", 0) == len(offsets(batch))


async def test_ack_completes_the_records_of_an_arrow_batch() -> None:
    consumer = Consumer("orders", group_id="billing", commit_mode="ack")
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 6)
        await t.advance(1)
        batches = consumer.arrow_batches(max_records=3)
        first, second = await anext(batches), await anext(batches)
        assert consumer.ack(second)
        await t.advance(10)
        assert not t.committed("orders", 0)
        assert consumer.ack(first)
        await t.advance(10)
        assert t.committed("orders", 0) == 6


async def test_rows_that_become_no_batch_are_not_committed_by_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from asyncrevoke.client.columns.poll_columns import PollColumns

    def fails(_columns: PollColumns, _slices: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(PollColumns, "of", fails)
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 3)
        await t.advance(1)
        batches = consumer.arrow_batches(["offset"])
        for _ in range(2):
            with pytest.raises(MemoryError):
                await anext(batches)
        await t.advance(10)
        assert t.committed("orders", 0) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["price"]}, "there is no column 'price': choose from key, value"),
        ({"columns": "key"}, "columns='key': a list of names"),
        ({"columns": []}, "a list of names"),
        ({"columns": ["key", "key"]}, "a column twice"),
        ({"max_records": 0}, "max_records=0: from 1 to 16,777,216"),
        ({"max_records": 2**40}, "a batch ends earlier at 256 MiB"),
        ({"max_wait": -1}, "max_wait=-1"),
        ({"max_wait": float("nan")}, "max_wait=nan"),
    ],
)
async def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1):
        with pytest.raises(ConfigError, match=message):
            consumer.arrow_batches(**options)


async def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "asyncrevoke.client.runtime.arrow.arrow_options.find_spec"

    def found(package: str) -> object | None:
        return None if package == "pyarrow" else object()

    monkeypatch.setattr(module, found)
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1):
        with pytest.raises(ConfigError, match=r'pyarrow: pip install "asyncrevoke\[arrow\]"'):
            consumer.arrow_batches()


async def test_records_follow_arrow_batches_and_the_other_way_round() -> None:
    consumer = Consumer("orders", group_id="billing", max_poll_records=2)
    async with TestConsumer(consumer, partitions=1) as t:
        await publish(t, 9)
        await t.advance(1)
        batches, records = consumer.arrow_batches(["offset"], max_records=3), consumer.records()
        found: list[Sequence[int]] = [
            [record.offset for record in (await consumer.poll()).records],
            offsets(await anext(batches)),
            [(await anext(records)).offset],
            offsets(await anext(batches)),
        ]
        assert found == [[0, 1], [2, 3, 4], [5], [6, 7, 8]]
