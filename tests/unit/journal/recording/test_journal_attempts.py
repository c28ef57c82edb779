"""Attempts: their rows for handlers, loops, acknowledgements and task groups."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, get_args

import pytest
from unit.journal.journal_rows import attempts_of, rows_of
from unit.journal.recording.journalled_member import PARTITION, JournalledMember
from unit.journal.written_journal import record

from asyncrevoke import BatchError, Consumer, Record, Retry
from asyncrevoke.client.core.io.effects import Emit, Notify, NotifyKind
from asyncrevoke.client.runtime.hooks.recorders import FailureDecision
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content


async def test_a_journal_has_attempts_commits_and_assignments(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        await asyncio.sleep(1)

    async with TestConsumer(consumer, partitions=2) as t:
        await t.publish("orders", {"id": 1}, key="a", partition=0)
        await t.advance(3)
        await t.revoke(("orders", 0))
        await t.lose(("orders", 1))
    assert attempts_of(tmp_path) == [(0, 0, 1, "ok")]
    (attempt,) = rows_of(tmp_path, "ATTEMPT")
    assert attempt["at_us"] - attempt["started_us"] == pytest.approx(1_000_000, abs=2)
    commits = [(r["partition"], r["offset"]) for r in rows_of(tmp_path, "COMMIT")]
    assert commits[-1] == (0, 1)
    told = [(r["kind"], r["partition"]) for r in rows_of(tmp_path, "ASSIGN", "RELEASED", "LOST")]
    assert told == [("ASSIGN", 0), ("ASSIGN", 1), ("RELEASED", 0), ("LOST", 1)]
    (state,) = read_journal(tmp_path).sessions
    assert state.ended
    assert state.gap is None
    assert state.facts["group"] == "billing"


async def test_what_ends_in_the_turn_of_a_release_has_ended_before_it(tmp_path: Path) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()
    member.turn_began()
    first = record(0)
    member.called([first])
    member.put_done([first])
    member.recorder.partitions_changed(Notify(NotifyKind.REVOKED, frozenset({PARTITION})))
    member.turn_ended([])
    await member.recorder.aclose()
    told = rows_of(tmp_path, "ATTEMPT", "RELEASED")
    assert [row["kind"] for row in told] == ["ATTEMPT", "RELEASED"]
    assert told[0]["at_us"] <= told[1]["at_us"]


async def test_the_completion_map_of_a_previous_owner_is_a_row(tmp_path: Path) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()
    fields: dict[str, object] = {"partition": "orders-0", "runs": [[3, 5], [7, 8]]}
    member.recorder.core_reported(Emit("debug", "completion map is applied", fields))
    await member.recorder.aclose()
    (row,) = rows_of(tmp_path, "SKIPPED")
    assert (row["topic"], row["partition"]) == ("orders", 0)
    assert json.loads(row["facts"]) == {"runs": [[3, 5], [7, 8]]}


async def test_an_attempt_has_the_outcome_of_its_failure(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1), dead_letter="dlq")
    async def bill(value: dict[str, int]) -> None:
        if value["id"] == 1:
            raise ValueError("no such customer")

    @consumer.handler("clicks", on_error="skip")
    async def count(value: dict[str, int]) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", {"id": 1})
        await t.publish("orders", {"id": 2})
        await t.publish("clicks", b"not JSON")
        await t.advance(5)
    assert Counter(attempts_of(tmp_path)) == Counter(
        [(0, 0, 1, "retried"), (0, 0, 2, "dead_lettered"), (0, 1, 1, "ok"), (0, 0, 1, "skipped")]
    )
    failed = [r for r in rows_of(tmp_path, "ATTEMPT") if r["outcome"] == "dead_lettered"]
    assert (failed[0]["error_type"], failed[0]["error"]) == ("ValueError", "no such customer")


async def test_each_attempt_of_a_record_has_its_number(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))
    calls: list[int] = []

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1))
    async def bill(value: dict[str, int]) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", {"id": 1})
        await t.advance(5)
    assert attempts_of(tmp_path) == [(0, 0, 1, "retried"), (0, 0, 2, "ok")]


async def test_each_record_of_a_batch_handler_has_its_own_outcome(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("clicks", batch=True, max_records=3, max_wait=1, on_error="skip")
    async def store(values: list[dict[str, int]]) -> None:
        raise BatchError({1: ValueError("no")})

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(3):
            await t.publish("clicks", {"id": number})
        await t.advance(5)
    assert sorted(attempts_of(tmp_path)) == [(0, 0, 1, "ok"), (0, 1, 1, "skipped"), (0, 2, 1, "ok")]


async def test_a_call_cancelled_for_a_lost_partition_is_an_attempt(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        await asyncio.sleep(100)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", {"id": 1})
        await t.lose(("orders", 0))
    assert attempts_of(tmp_path) == [(0, 0, 1, "cancelled")]


async def test_a_record_is_completed_when_the_loop_polls_again_and_abandoned_otherwise(
    tmp_path: Path,
) -> None:
    consumer = Consumer("orders", group_id="billing", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await consumer.poll()
        await t.publish("orders", b"2")
        await consumer.poll()
    assert attempts_of(tmp_path) == [(0, 0, None, "ok"), (0, 1, None, "given_up")]


async def test_a_record_is_completed_when_acknowledged_and_abandoned_otherwise(
    tmp_path: Path,
) -> None:
    consumer = Consumer("orders", group_id="g", commit_mode="ack", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        batch = await consumer.poll()
        consumer.ack(batch.records[1])
    assert attempts_of(tmp_path) == [(0, 1, None, "ok"), (0, 0, None, "given_up")]


async def test_records_of_a_manual_commit_are_delivered(tmp_path: Path) -> None:
    consumer = Consumer("orders", group_id="g", commit_mode="manual", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await consumer.poll()
        committing = asyncio.create_task(consumer.commit())
        await t.advance(1)
        await committing
    assert attempts_of(tmp_path) == [(0, 0, None, "delivered")]
    assert [r["offset"] for r in rows_of(tmp_path, "COMMIT")] == [1]


async def test_tasks_of_a_task_group_and_records_without_a_task_are_attempts(
    tmp_path: Path,
) -> None:
    consumer = Consumer("orders", group_id="billing", journal=Journal(tmp_path))

    async def work(record: Record) -> None:
        await asyncio.sleep(1)

    async with TestConsumer(consumer, partitions=1) as t, consumer.task_group() as tasks:
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        batch = await consumer.poll()
        await tasks.submit(work, batch.records[0])
        await t.advance(2)
        await consumer.poll(timeout=0.1)
    assert sorted(attempts_of(tmp_path)) == [(0, 0, 1, "ok"), (0, 1, None, "ok")]


async def test_a_strict_journal_has_a_start_row_before_the_handler_is_called(
    tmp_path: Path,
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, strict=True))
    seen: list[int] = []

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        seen.extend(row["offset"] for row in rows_of(tmp_path, "START"))

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert seen == [0]
    assert attempts_of(tmp_path) == [(0, 0, 1, "ok")]


@pytest.mark.parametrize("content", ["batches", "records", None])
async def test_attempts_that_end_in_one_turn_of_the_loop_keep_topic_and_partition(
    tmp_path: Path, content: Content | None
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, content=content))

    async def count(_record: Record) -> None: ...

    consumer.handler("orders", "clicks")(count)
    sent: Counter[tuple[str, int, int]] = Counter()
    async with TestConsumer(consumer, partitions=2) as t:
        for topic in ("orders", "clicks"):
            for number in range(400):
                await t.publish(
                    topic, b"%d" % number, key=b"%d" % (number % 7), partition=number % 2
                )
                sent[topic, number % 2, number // 2] += 1
            await t.advance(1)
    written = [(r["topic"], r["partition"], r["offset"]) for r in rows_of(tmp_path, "ATTEMPT")]
    assert Counter(written) == sent


async def test_a_record_that_fails_while_its_partition_is_revoked_is_given_up(
    tmp_path: Path,
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1))
    async def bill(record: Record) -> None:
        await asyncio.sleep(1)
        raise ConnectionError("the database is down")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", {"id": 1})
        await t.revoke(PARTITION)
        await t.advance(5)
    assert attempts_of(tmp_path) == [(0, 0, 1, "given_up")]
    (attempt,) = rows_of(tmp_path, "ATTEMPT")
    assert attempt["error"] == "the database is down"
    (state,) = read_journal(tmp_path).sessions
    assert state.gap is None


@pytest.mark.parametrize("decision", get_args(FailureDecision))
async def test_each_decision_about_a_failed_record_has_an_outcome(
    tmp_path: Path, decision: FailureDecision
) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()
    first = record(0)
    member.turn_began()
    member.called([first])
    member.recorder.failure_decided(first, decision, ValueError("refused"))
    member.turn_ended([])
    await member.recorder.aclose()
    (attempt,) = rows_of(tmp_path, "ATTEMPT")
    assert attempt["outcome"] == {"abandoned": "given_up"}.get(decision, decision)
