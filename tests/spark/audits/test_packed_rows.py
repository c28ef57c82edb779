"""Rows of a journal in blobs, one task of an audit each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.test_journal_damage import in_segments
from unit.journal.written_journal import TOPIC, A, clean_run

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.journal.errors import DamagedJournalError
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.rows import SCHEMA
from asyncrevoke.journal.format.schema import CallOutcome
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import sessions
from asyncrevoke.spark.audits import packed_rows
from asyncrevoke.spark.audits.overview import overview_of, summary_of
from asyncrevoke.spark.audits.packed_rows import PackRows, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def rows_of(blobs: Iterable[Any]) -> list[tuple[int, str, list[dict[str, Any]]]]:
    """The task, the table and the rows of each blob."""
    return [
        (row["task"], row["name"], unpacked(row["rows"]).to_pylist())
        for batch in blobs
        for row in batch.to_pylist()
    ]


def attempt(number: int, partition: int, **changed: Any) -> dict[str, Any]:
    empty = dict.fromkeys(SCHEMA.names)
    row = {"session_id": A, "seq": number, "kind": "ATTEMPT", "at_us": 5, "started_us": 4}
    where = {"group": "billing", "topic": TOPIC, "partition": partition, "offset": number}
    return empty | row | where | {"attempt": 1, "outcome": "ok"} | changed


def packed(rows: list[dict[str, Any]], tasks: int = 2) -> list[tuple[int, str, list[Any]]]:
    batch: Any = pa.RecordBatch.from_pylist(rows, SCHEMA)
    return rows_of(PackRows(TOPIC, "billing", [A], tasks).of_rows([batch]))


def test_rows_go_to_the_task_of_their_partition_in_their_order() -> None:
    found = packed([attempt(number, number % 5) for number in range(20)])
    by_task = {task: [(row["part"], row["off"]) for row in rows] for task, _, rows in found}
    assert by_task == {
        task: [(n % 5, n) for n in range(20) if n % 5 % 2 == task] for task in (0, 1)
    }


def test_rows_of_other_topics_and_groups_and_of_no_partition_are_left_out() -> None:
    others = [
        attempt(0, 0, topic="bills"),
        attempt(1, 0, group="other"),
        attempt(2, 0, group=None),
        attempt(3, 0) | {"partition": None},
        attempt(4, -1),
    ]
    assert packed(others) == []
    assert packed([*others, attempt(5, 0)])[0][2][0]["off"] == 5


def test_unknown_outcomes_are_no_outcome() -> None:
    ((_, _, rows),) = packed([attempt(0, 0, outcome="lucky"), attempt(1, 0, outcome="stopped")])
    stopped = list(CallOutcome).index(CallOutcome.STOPPED)
    assert [row["outcome"] for row in rows] == [-1, stopped]


def test_a_task_holds_a_limited_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_rows, "_ENOUGH", 50)
    monkeypatch.setattr(packed_rows, "_MOST", 60)
    batches: list[Any] = [
        pa.RecordBatch.from_pylist([attempt(n, n) for n in range(at, at + 10)], SCHEMA)
        for at in range(0, 100, 10)
    ]
    blobs = rows_of(PackRows(TOPIC, "billing", [A], 7).of_rows(batches))
    assert sum(len(rows) for *_, rows in blobs) == 100
    assert len(blobs) > 7


def test_a_file_that_changed_after_it_was_checked_is_damage(tmp_path: Path) -> None:
    segment = in_segments(tmp_path, sealed=True).segments()[0]
    data = bytearray(segment.path.read_bytes())
    data[len(data) // 2] ^= 1
    file: Any = pa.RecordBatch.from_pydict({"path": [str(segment.path)], "content": [bytes(data)]})
    with pytest.raises(DamagedJournalError, match=r"000001.parquet changed during the audit: its"):
        list(PackRows(TOPIC, "billing", [A], 1).of_files([file]))


def test_summaries_of_any_batches_give_the_sessions_that_reading_gives(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    content = read_journal(tmp_path)
    rows = content.table.to_pylist()
    for size in (1, 7, len(rows)):
        batches = [
            pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA)
            for at in range(0, len(rows), size)
        ]
        known = overview_of([summary_of(batch) for batch in batches], frozenset())
        expected = [state._replace(segments=0, sealed=0) for state in content.sessions]
        assert list(known.sessions) == expected
    assert len(sessions(tmp_path)) == 2


def test_rows_of_very_many_sessions_are_summarized() -> None:
    names = [f"20270115T080021Z-{number:08x}" for number in range(20_000)]
    batch = pa.RecordBatch.from_pylist([attempt(0, 0, session_id=name) for name in names], SCHEMA)
    assert len(overview_of([summary_of(batch)], frozenset()).sessions) == len(names)
