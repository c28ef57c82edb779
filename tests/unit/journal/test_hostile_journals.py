"""Journals that no consumer wrote are rejected, and nothing in them is executed or followed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.sealed_again import seal_again
from unit.journal.written_journal import A, B, JournalMember, audited, clean_run

from asyncrevoke import ConfigError
from asyncrevoke.audit.audited_group import isolation_level_of
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.audit.sql.text import Sql, compose, identifier, literal
from asyncrevoke.journal.format import rows
from asyncrevoke.journal.format.arrow import pa, pq
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch, encoded
from asyncrevoke.journal.format.frames import SegmentHeader, frame, frames, header_frame
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.segments import JournalSession, read, read_blob, seal_session
from asyncrevoke.journal.session_id import is_session_id, new_session_id

if TYPE_CHECKING:
    from pathlib import Path

INJECTION = "') GROUP BY session; COPY (SELECT 42) TO 'stolen.csv'; --"


def without_a_beginning(folder: Path, name: str) -> JournalSession:
    """A session whose rows do not say of what consumer they are."""
    member = JournalMember("a", 0, 50)
    member.folder = name
    member.write(folder)
    session = JournalSession(folder / name)
    (segment,) = session.segments()
    table = pa.Table.from_batches(read(segment).batches)
    pq.write_table(table.slice(1), segment.path.with_suffix(".parquet"))
    segment.path.unlink()
    return session


@pytest.mark.parametrize("name", [INJECTION, "it's", "a", "..\\a", "20260102T030405Z-0123ABCD"])
def test_a_journal_with_a_folder_that_is_named_as_no_session_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = tmp_path / "journal"
    _, second = clean_run()
    session = without_a_beginning(journal, name)
    with pytest.raises(ConfigError, match="is not a session id") as rejected:
        audited(journal, second)
    assert str(session.folder) in str(rejected.value)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_journal_with_rows_of_another_session_is_rejected(tmp_path: Path) -> None:
    JournalMember("a", 0, 50).write(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert seal_session(JournalSession(folder))
    (segment,) = JournalSession(folder).segments()
    table = pq.read_table(segment.path).replace_schema_metadata(None)
    names = pa.array([INJECTION] * table.num_rows)
    pq.write_table(table.set_column(0, "session_id", names), segment.path)
    with pytest.raises(ConfigError, match="is not a session id") as rejected:
        read_journal(tmp_path)
    assert str(segment.path) in str(rejected.value)


def test_rows_of_a_second_session_in_one_folder_are_damage(tmp_path: Path) -> None:
    JournalMember("a", 0, 50).write(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert seal_session(JournalSession(folder))
    (segment,) = JournalSession(folder).segments()
    table = pq.read_table(segment.path).replace_schema_metadata(None)
    names = table["session_id"].to_pylist()
    names[-1] = B
    pq.write_table(table.set_column(0, "session_id", pa.array(names)), segment.path)
    (state,) = read_journal(tmp_path).sessions
    assert f"segment 000001.parquet has rows of session {B}" in state.damaged


@pytest.mark.parametrize(
    "facts",
    [
        "",
        "{",
        "[]",
        "7",
        "[" * 100_000,
        '{"group": "billing", "revoke_budget": "x"}',
        '{"group": "billing", "revoke_budget": %s}' % ("9" * 400),
        '{"group": "billing", "revoke_budget": Infinity}',
        '{"group": "billing", "isolation_level": []}',
    ],
    ids=range(9),
)
def test_facts_that_no_consumer_writes_are_no_end_of_the_audit(tmp_path: Path, facts: str) -> None:
    a, b = clean_run()
    a.write(tmp_path)
    assert seal_session(JournalSession(tmp_path / A))
    (segment,) = JournalSession(tmp_path / A).segments()

    def change(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["kind"] in ("BEGIN", "TOPIC"):
                row["facts"] = facts

    seal_again(segment, change)
    assert audited(tmp_path, b).status in ("PASS", "INCONCLUSIVE")
    assert isolation_level_of(read_journal(tmp_path).sessions) == "read_committed"


def long_texts(length: int, count: int = 16_384, batches: int = 1) -> bytes:
    """A log of a few kilobytes whose rows all have a text of this length."""
    columns = ColumnArrays({}, {"kind": (["ATTEMPT"], [count]), "error": (["x" * length], [count])})
    log = header_frame(SegmentHeader(A, "billing", 1), 0).data
    for number in range(batches):
        log += b"".join(each.data for each in frames(RowBatch(number * count, count, columns)))
    return log


def test_a_batch_whose_rows_repeat_a_long_text_is_damage() -> None:
    assert read_blob(long_texts(4096)).damaged is None
    content = read_blob(long_texts(8192))
    assert content.batches == []
    assert "characters, more than" in (content.damaged or "")


NESTED = b"\x81\xa1x" + b"\x91" * 100_000 + b"\x01"


def test_a_nested_batch_of_a_topic_is_damage() -> None:
    for count in (0, 5):
        content = read_blob(frame(0, count, NESTED).data)
        assert "the batch at row 0 cannot be read" in str(content.damaged)


def test_a_nested_batch_at_the_end_of_a_log_is_damage_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    JournalMember("a", 0, 50).write(tmp_path)
    (folder,) = tmp_path.iterdir()
    (segment,) = JournalSession(folder).segments()
    before = sum(batch.num_rows for batch in read(segment).batches)
    segment.path.write_bytes(segment.path.read_bytes() + frame(10**6, 5, NESTED).data)
    content = read(segment)
    assert "the batch at row 1000000 cannot be read" in str(content.damaged)
    assert sum(batch.num_rows for batch in content.batches) >= before
    assert read_journal(tmp_path).sessions[0].damaged


def test_a_nested_header_of_a_sealed_segment_is_damage(tmp_path: Path) -> None:
    JournalMember("a", 0, 50).write(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert seal_session(JournalSession(folder))
    (segment,) = JournalSession(folder).segments()
    header = '{"session":"s","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    table = pq.read_table(segment.path)
    with pq.ParquetWriter(segment.path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"asyncrevoke.journal": header})
    assert "it is not readable" in str(read(segment).damaged)


def test_batches_with_long_texts_are_not_joined_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_TEXT", 1000)
    content = read_blob(long_texts(40, count=10, batches=3))
    assert content.damaged is None
    assert [batch.num_rows for batch in content.batches] == [20, 10]


def test_a_batch_that_would_make_tens_of_millions_of_objects_is_damage() -> None:
    payload = encoded(ColumnArrays({}, {"kind": ([None], [1] * 2**20)}))
    data = header_frame(SegmentHeader(A, None, 1), 0).data + frame(0, 1, payload).data
    content = read_blob(data)
    assert "larger than a journal writes" in (content.damaged or "")


def test_generated_ids_are_session_ids() -> None:
    assert is_session_id(new_session_id(0.0))
    assert is_session_id(new_session_id(1_800_000_000.5))


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 42) TO 'stolen.csv'",
        "SELECT * FROM read_csv('secret.csv')",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET temp_directory = '.'",
        "SET lock_configuration = false",
        "SELECT * FROM of_python",
    ],
)
def test_no_query_reaches_beyond_the_tables_of_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    of_python = pa.table({"a": [1]})
    (tmp_path / "secret.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    database = AuditDatabase()
    try:
        with pytest.raises(Exception, match=r"(disabled|locked|does not exist)"):
            database.rows(Sql(query))
    finally:
        database.close()
    assert of_python.num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_what_does_not_fit_into_memory_goes_to_a_folder_of_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    database = AuditDatabase()
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert database.rows("SELECT current_setting('temp_directory')") == [(str(folder),)]
    database.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("word", ["a b", 'a"', "a`", "a'", "", "1a", "ä", "a\n"])
def test_only_words_are_quoted_in_queries(word: str) -> None:
    with pytest.raises(ValueError, match="is not allowed in a query"):
        identifier(word)
    with pytest.raises(ValueError, match="is not allowed in a query"):
        literal(word)


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_only_numbers_that_sql_has_are_parts_of_queries(number: float) -> None:
    with pytest.raises(ValueError, match="is not allowed in a query"):
        compose("SELECT {number}", number=number)


def test_parts_of_queries_are_not_templates() -> None:
    part: Any = compose("{name}", name=identifier("a"))
    assert compose("SELECT {part} + {number}", part=part, number=-1) == 'SELECT "a" + -1'
