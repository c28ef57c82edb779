"""What consumers write down, and that it is on disk before a commit covers it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from unit.journal.written_journal import A, clean_run, record

from asyncrevoke import BatchError, ConfigError, Consumer, FatalError, Record, Retry
from asyncrevoke.journal import Journal
from asyncrevoke.journal.format.arrow import pa, pc, pq
from asyncrevoke.journal.format.frames import SegmentHeader, header_frame
from asyncrevoke.journal.format.hashing import key_hash, signed_key_hashes
from asyncrevoke.journal.reading import JournalContent, SessionState, read_journal
from asyncrevoke.journal.recording.encoding import encode, pack
from asyncrevoke.journal.recording.entries import Attempts, Entry, Packed, Turn
from asyncrevoke.journal.segments import JournalSession, read_blob, seal_session, sessions
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content


def rows(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """Of these kinds."""
    found = read_journal(path).table.sort_by([("session_id", "ascending"), ("seq", "ascending")])
    return [row for row in found.to_pylist() if row["kind"] in kinds]


def attempts(path: Path) -> list[tuple[int, int, int | None, str]]:
    """Partition, offset, number and outcome of each."""
    return [
        (row["partition"], row["offset"], row["attempt"], row["outcome"])
        for row in rows(path, "ATTEMPT")
    ]


async def test_attempts_commits_and_the_group_are_written_down(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        await asyncio.sleep(1)

    async with TestConsumer(consumer, partitions=2) as t:
        await t.publish("orders", {"id": 1}, key="a", partition=0)
        await t.advance(3)
        await t.revoke(("orders", 0))
        await t.lose(("orders", 1))
    assert attempts(tmp_path) == [(0, 0, 1, "ok")]
    (attempt,) = rows(tmp_path, "ATTEMPT")
    assert attempt["at_us"] - attempt["started_us"] == pytest.approx(1_000_000, abs=2)
    commits = [(r["partition"], r["offset"]) for r in rows(tmp_path, "COMMIT")]
    assert commits[-1] == (0, 1)
    told = [(r["kind"], r["partition"]) for r in rows(tmp_path, "ASSIGN", "RELEASED", "LOST")]
    assert told == [("ASSIGN", 0), ("ASSIGN", 1), ("RELEASED", 0), ("LOST", 1)]
    (state,) = read_journal(tmp_path).sessions
    assert state.ended
    assert state.gap is None
    assert state.facts["group"] == "billing"


async def test_what_becomes_of_failures_is_written_down(tmp_path: Path) -> None:
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
    assert Counter(attempts(tmp_path)) == Counter(
        [(0, 0, 1, "retried"), (0, 0, 2, "dead_lettered"), (0, 1, 1, "ok"), (0, 0, 1, "skipped")]
    )
    failed = [r for r in rows(tmp_path, "ATTEMPT") if r["outcome"] == "dead_lettered"]
    assert (failed[0]["error_type"], failed[0]["error"]) == ("ValueError", "no such customer")


async def test_a_second_attempt_that_succeeds_has_its_number(tmp_path: Path) -> None:
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
    assert attempts(tmp_path) == [(0, 0, 1, "retried"), (0, 0, 2, "ok")]


async def test_records_of_a_batch_have_an_outcome_each(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("clicks", batch=True, max_records=3, max_wait=1, on_error="skip")
    async def store(values: list[dict[str, int]]) -> None:
        raise BatchError({1: ValueError("no")})

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(3):
            await t.publish("clicks", {"id": number})
        await t.advance(5)
    assert sorted(attempts(tmp_path)) == [(0, 0, 1, "ok"), (0, 1, 1, "skipped"), (0, 2, 1, "ok")]


async def test_cancelled_calls_of_a_lost_partition_are_written_down(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        await asyncio.sleep(100)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", {"id": 1})
        await t.lose(("orders", 0))
    assert attempts(tmp_path) == [(0, 0, 1, "cancelled")]


async def test_a_loop_says_what_it_was_given_and_asked_beyond(tmp_path: Path) -> None:
    consumer = Consumer("orders", group_id="billing", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await consumer.poll()
        await t.publish("orders", b"2")
        await consumer.poll()
    assert attempts(tmp_path) == [(0, 0, None, "ok"), (0, 1, None, "given_up")]


async def test_acks_are_attempts(tmp_path: Path) -> None:
    consumer = Consumer("orders", group_id="g", commit_mode="ack", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.publish("orders", b"2")
        batch = await consumer.poll()
        consumer.ack(batch.records[1])
    assert attempts(tmp_path) == [(0, 1, None, "ok"), (0, 0, None, "given_up")]


async def test_commits_by_hand_cover_what_was_delivered(tmp_path: Path) -> None:
    consumer = Consumer("orders", group_id="g", commit_mode="manual", journal=Journal(tmp_path))
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await consumer.poll()
        committing = asyncio.create_task(consumer.commit())
        await t.advance(1)
        await committing
    assert attempts(tmp_path) == [(0, 0, None, "delivered")]
    assert [r["offset"] for r in rows(tmp_path, "COMMIT")] == [1]


async def test_tasks_of_a_group_are_attempts_and_the_rest_of_a_batch_too(tmp_path: Path) -> None:
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
    assert sorted(attempts(tmp_path)) == [(0, 0, 1, "ok"), (0, 1, None, "ok")]


async def test_strict_writes_a_call_down_before_it_is_made(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, strict=True))
    seen: list[int] = []

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        seen.extend(row["offset"] for row in rows(tmp_path, "START"))

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert seen == [0]
    assert attempts(tmp_path) == [(0, 0, 1, "ok")]


@pytest.mark.parametrize("strict", [True, False])
async def test_without_content_rows_have_no_hashes(tmp_path: Path, strict: bool) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, strict=strict, content=None))

    @consumer.handler("orders", on_error="skip")
    async def bill(value: dict[str, int]) -> None:
        if value["id"] == 1:
            raise ValueError("no such customer")

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(4):
            await t.publish("orders", {"id": number}, key="a")
        await t.advance(1)
    assert Counter(attempts(tmp_path)) == Counter(
        [(0, 0, 1, "ok"), (0, 1, 1, "skipped"), (0, 2, 1, "ok"), (0, 3, 1, "ok")]
    )
    assert len(rows(tmp_path, "START")) == (4 if strict else 0)
    found = read_journal(tmp_path)
    assert {(row["key_hash"], row["record_hash"]) for row in found.table.to_pylist()} == {
        (None, None)
    }
    assert found.sessions[0].facts["content"] is None
    assert found.sessions[0].gap is None


@pytest.mark.parametrize("content", ["batches", "records", None])
async def test_many_calls_of_one_turn_are_written_down_by_topic_and_partition(
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
    written = [(r["topic"], r["partition"], r["offset"]) for r in rows(tmp_path, "ATTEMPT")]
    assert Counter(written) == sent


async def test_nothing_is_committed_beyond_what_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)

    t = TestConsumer(consumer, partitions=1)
    with pytest.raises(FatalError, match="No space left"):
        async with t:
            await t.publish("orders", b"1")
            await t.advance(5)
    assert t.committed("orders", 0) in (None, 0)


async def test_segments_are_sealed_when_they_are_large(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, segment_bytes=1))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(3):
            await t.publish("orders", b"%d" % number)
            await t.advance(2)
    (state,) = read_journal(tmp_path).sessions
    assert state.segments == state.sealed > 3
    assert state.gap is None
    assert [offset for _, offset, _, _ in attempts(tmp_path)] == [0, 1, 2]


def torn(tmp_path: Path, cut: int) -> JournalContent:
    """A log whose end is missing."""
    member, _ = clean_run()
    member.write(tmp_path)
    log = tmp_path / A / "000001.log"
    log.write_bytes(log.read_bytes()[:-cut])
    return read_journal(tmp_path)


def test_a_torn_end_leaves_what_was_before_it(tmp_path: Path) -> None:
    whole = torn(tmp_path / "whole", 1).table.num_rows
    content = torn(tmp_path / "torn", 3)
    (state,) = content.sessions
    assert content.table.num_rows == whole > 0
    assert state.torn is not None
    assert "torn" in state.torn
    assert not state.missing
    assert state.gap is not None


def test_a_torn_log_is_sealed_without_its_end(tmp_path: Path) -> None:
    before = torn(tmp_path, 3).table
    (session,) = sessions(tmp_path)
    sealed = seal_session(session)
    assert sealed is not None
    assert [segment.path.name for segment in sealed] == ["000001.parquet"]
    assert read_journal(tmp_path).table.equals(before.combine_chunks())


def test_a_session_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    session = JournalSession(tmp_path / A)
    with session.lock().acquire():
        assert session.live
        assert seal_session(session) is None
    assert not session.live


def test_a_file_is_no_place_for_a_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.touch()
    with pytest.raises(ConfigError, match="a folder is needed"):
        Journal(file)


async def test_the_batches_of_what_was_handled_are_written_down(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=2) as t:
        for number in range(40):
            await t.publish("orders", b"%d" % number, partition=number % 2)
        await t.advance(1)
    batches, calls = rows(tmp_path, "FETCHED"), rows(tmp_path, "ATTEMPT")
    covered = [
        (row["topic"], row["partition"], offset)
        for row in batches
        for offset in range(row["offset"], row["last_offset"] + 1)
    ]
    assert Counter(covered) == Counter((r["topic"], r["partition"], r["offset"]) for r in calls)
    assert all(row["records"] == 1 and row["checksum"] is not None for row in batches)
    came = {(row["partition"], row["offset"]): row["started_us"] for row in batches}
    assert all(came[row["partition"], row["offset"]] <= row["started_us"] for row in calls)


async def test_a_batch_is_on_disk_before_a_record_of_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path), commit_interval=1)
    on_disk: list[set[str]] = []
    sync = os.fsync

    def seen(descriptor: int) -> None:
        sync(descriptor)
        assert t.committed("orders", 0) is None
        on_disk.append({row["kind"] for row in read_journal(tmp_path).table.to_pylist()})

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    t = TestConsumer(consumer, partitions=1)
    async with t:
        await t.publish("orders", b"1")
        monkeypatch.setattr(os, "fsync", seen)
        await t.advance(1.5)
        monkeypatch.undo()
        assert t.committed("orders", 0) == 1
    assert {"FETCHED", "ATTEMPT"} <= on_disk[-1]


@pytest.mark.parametrize("content", [None, "records"])
async def test_batches_are_not_written_down_unless_they_are_wanted(
    tmp_path: Path, content: Content | None
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, content=content))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert rows(tmp_path, "FETCHED") == []
    assert len(rows(tmp_path, "ATTEMPT")) == 1


def test_another_content_is_refused(tmp_path: Path) -> None:
    other: Any = True
    with pytest.raises(ConfigError, match='content=True: "batches"'):
        Journal(tmp_path, content=other)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_name: str) -> None: ...

    monkeypatch.setattr("importlib.util.find_spec", nowhere)
    with pytest.raises(ConfigError, match=r"pip install 'asyncrevoke\[journal\]'"):
        Journal(tmp_path)


def taken_apart(records: list[Record], *, hashed: bool = True) -> tuple[Packed | None, Attempts]:
    started = list(range(len(records)))
    turns = [Turn(len(records), started, 200)]
    packed = pack(records, turns, hashed=hashed, one_topic=False)
    return packed, Attempts(records, started, 200)


def test_hashes_of_keys_are_signed_as_those_of_spark() -> None:
    keys = [b"%d" % number for number in range(100)]
    hashes = [key_hash(key) for key in keys]
    assert max(hashes) >= 2**63
    signed = [number - 2**64 if number >= 2**63 else number for number in hashes]
    assert signed_key_hashes([*keys, None]) == [*signed, None]


def encoded_rows(entry: Entry, *, hashed: bool) -> list[dict[str, Any]]:
    """As they are read from a log."""
    header = header_frame(SegmentHeader(A, "billing", 1), 5).data
    frames = [frame.data for frame in encode([entry], 5, hashed=hashed)]
    content = read_blob(b"".join([header, *frames]))
    assert (content.torn, content.damaged) == (None, None)
    return [row for batch in content.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("change", [{}, {"key": None}])
def test_rows_that_are_taken_apart_at_once_are_the_same(
    change: dict[str, Any], hashed: bool
) -> None:
    records = [
        msgspec.structs.replace(record(offset, partition=offset % 3), **change)
        for offset in range(100)
    ]
    packed, attempts = taken_apart(records, hashed=hashed)
    assert packed is not None
    assert encoded_rows(packed, hashed=hashed) == encoded_rows(attempts, hashed=hashed)


@pytest.mark.parametrize("change", [{"key": None}, {"value": None}, {"topic": "bills"}])
def test_what_is_not_plain_is_not_taken_apart(change: dict[str, Any]) -> None:
    odd = msgspec.structs.replace(record(50), **change)
    plain = [record(offset) for offset in range(50)]
    assert taken_apart([*plain, odd])[0] is None
    assert taken_apart([odd, *plain])[0] is None


def as_arrow(folder: Path, table: Any, *, in_runs: tuple[str, ...] = ()) -> None:
    """The log of a session, as version 1 wrote it."""
    known = {"session_id": A, "group": "billing"}
    columns = {
        name: pc.call_function("run_end_encode", [table[name].combine_chunks()])
        if name in in_runs
        else table[name].combine_chunks()
        for name in table.column_names
        if name not in known
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    schema = batch.schema.with_metadata(known)
    with pa.ipc.new_stream(str(folder / "000001.arrow"), schema) as stream:
        stream.write_batch(batch.replace_schema_metadata(known))


@pytest.mark.parametrize("in_runs", [(), ("at_us", "started_us", "kind", "topic")])
def test_a_log_of_version_1_is_read_and_sealed(tmp_path: Path, in_runs: tuple[str, ...]) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    now = read_journal(tmp_path).table
    (tmp_path / A / "000001.log").unlink()
    as_arrow(tmp_path / A, now, in_runs=in_runs)
    content = read_journal(tmp_path)
    assert content.table.to_pylist() == now.to_pylist()
    assert content.sessions[0].gap is None
    assert seal_session(JournalSession(tmp_path / A)) is not None
    sealed = read_journal(tmp_path)
    assert sealed.table.to_pylist() == now.to_pylist()
    assert (sealed.sessions[0].gap, sealed.sessions[0].sealed) == (None, 1)


@pytest.mark.parametrize("sealed", [True, False])
def test_journals_from_before_batches_were_noted_are_read(tmp_path: Path, sealed: bool) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    log = tmp_path / A / "000001.log"
    now = read_journal(tmp_path).table
    rows_now = now.to_pylist()
    old = now.drop_columns(["last_offset", "records", "checksum"])
    log.unlink()
    if sealed:
        pq.write_table(old, log.with_suffix(".parquet"))
    else:
        as_arrow(tmp_path / A, old)
    assert read_journal(tmp_path).table.to_pylist() == rows_now


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ({}, "records"),
        ({"content": True}, "records"),
        ({"content": False}, None),
        ({"content": None}, None),
        ({"content": "records"}, "records"),
        ({"content": "batches"}, "batches"),
    ],
)
def test_what_earlier_journals_say_of_content_is_understood(
    said: dict[str, object], content: Content | None
) -> None:
    state = SessionState(A, {"group": "billing", **said}, 1, 1, 0, None, None, True, False)
    assert state.content == content
