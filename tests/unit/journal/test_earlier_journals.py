"""Journals that earlier versions have written."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.journal_rows import plain_table
from unit.journal.written_journal import A, clean_run

from asyncrevoke.journal.format.arrow import pa, pc, pq
from asyncrevoke.journal.reading import SessionState, read_journal
from asyncrevoke.journal.segments import JournalSession, read_blob, seal_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.segments import Content as SegmentContent


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
    now = plain_table(tmp_path)
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
    now = plain_table(tmp_path)
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


def damaged_log(folder: Path, damage: Callable[[Any], Any], **options: Any) -> SegmentContent:
    """What is read of a log of version 1 whose batch ``damage`` has changed."""
    member, _ = clean_run()
    member.write(folder)
    table = plain_table(folder).drop_columns(["session_id", "group"])
    batch = damage(table.combine_chunks().to_batches()[0])
    blob = io.BytesIO()
    with pa.ipc.new_stream(blob, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_batch(batch)
    return read_blob(blob.getvalue())


def in_one_run(batch: Any, name: str, value: object, rows: int) -> Any:
    """A batch of ``rows`` rows, all in one run, of a column with ``value``."""
    kind = batch.schema.field(name).type
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([value], kind))
    return pa.RecordBatch.from_arrays([runs], names=[name])


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_log_of_version_1_is_rejected_before_it_is_unpacked(
    tmp_path: Path, compression: str
) -> None:
    content = damaged_log(tmp_path, lambda batch: batch, compression=compression)
    assert content.batches == []
    assert content.damaged == "it is compressed, and no version writes compressed logs"


def test_rows_of_a_log_of_version_1_without_bytes_are_rejected_before_they_are_made(
    tmp_path: Path,
) -> None:
    content = damaged_log(tmp_path, lambda batch: in_one_run(batch, "at_us", 1, 2**31 - 1))
    assert (content.batches, content.damaged) == ([], "it is larger than a journal writes")


def test_a_text_of_a_log_of_version_1_that_is_repeated_for_ever_is_rejected(tmp_path: Path) -> None:
    content = damaged_log(
        tmp_path, lambda batch: in_one_run(batch, "error", "x" * 2**18, 2**16 - 1)
    )
    assert (content.batches, content.damaged) == ([], "it is larger than a journal writes")


def test_a_column_of_another_type_in_a_log_of_version_1_is_rejected(tmp_path: Path) -> None:
    content = damaged_log(
        tmp_path, lambda batch: pa.RecordBatch.from_arrays([batch.column("topic")], names=["at_us"])
    )
    assert content.damaged == "its column at_us is of the type string"


def test_a_rejected_log_of_version_1_is_not_sealed(tmp_path: Path) -> None:
    folder = tmp_path / A
    folder.mkdir()
    schema = pa.schema([pa.field("at_us", pa.string())])
    with pa.ipc.new_stream(str(folder / "000001.arrow"), schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([pa.array(["x" * 40])], schema=schema))
    assert seal_session(JournalSession(folder)) == []
    assert (folder / "000001.arrow").exists()


def test_changed_bytes_of_a_log_of_version_1_are_read_or_rejected(tmp_path: Path) -> None:
    member, _ = clean_run()
    member.write(tmp_path)
    write_version_1(tmp_path / A, plain_table(tmp_path), in_runs=("kind", "topic", "at_us"))
    blob = (tmp_path / A / "000001.arrow").read_bytes()
    draw = random.Random(17)
    for _ in range(400):
        changed = bytearray(blob)
        for _ in range(draw.choice((1, 1, 4))):
            changed[draw.randrange(len(changed))] = draw.choice(
                (0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256))
            )
        content = read_blob(bytes(changed[: draw.choice((len(blob), draw.randrange(len(blob))))]))
        for batch in content.batches:
            batch.validate(full=True)
