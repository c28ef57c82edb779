"""Journals that earlier versions have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.written_journal import A, clean_run

from asyncrevoke.journal.format.arrow import pa, pc, pq
from asyncrevoke.journal.reading import SessionState, read_journal
from asyncrevoke.journal.segments import JournalSession, seal_session

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content


def write_version_1(folder: Path, table: Any, *, in_runs: tuple[str, ...] = ()) -> None:
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
    write_version_1(tmp_path / A, now, in_runs=in_runs)
    content = read_journal(tmp_path)
    assert content.table.to_pylist() == now.to_pylist()
    assert content.sessions[0].gap is None
    assert seal_session(JournalSession(tmp_path / A)) is not None
    sealed = read_journal(tmp_path)
    assert sealed.table.to_pylist() == now.to_pylist()
    assert (sealed.sessions[0].gap, sealed.sessions[0].sealed) == (None, 1)


@pytest.mark.parametrize("sealed", [True, False])
def test_journals_without_columns_of_record_batches_are_read(tmp_path: Path, sealed: bool) -> None:
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
        write_version_1(tmp_path / A, old)
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
def test_content_of_earlier_journals_is_understood(
    said: dict[str, object], content: Content | None
) -> None:
    state = SessionState(A, {"group": "billing", **said}, 1, 1, 0, None, None, True, False)
    assert state.content == content
