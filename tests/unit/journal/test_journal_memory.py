"""Small files whose rows would take gigabytes are read in little memory, or rejected by name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from unit.journal.written_journal import A, B, clean_run

from asyncrevoke import ConfigError
from asyncrevoke.journal import Journal
from asyncrevoke.journal.format import pages
from asyncrevoke.journal.format.arrow import pa, pq
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch, plain
from asyncrevoke.journal.format.frames import SegmentHeader, frames, header_frame
from asyncrevoke.journal.format.rows import SCHEMA
from asyncrevoke.journal.format.schema import facts_of
from asyncrevoke.journal.reading import by_time, read_journal
from asyncrevoke.journal.segments import read_blob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

READ = """
import pathlib, re, sys
from asyncrevoke.journal.reading import by_time, read_journal
content = read_journal(pathlib.Path(sys.argv[1]))
by_time(content.table, 10).to_pylist()
(peak,) = re.findall(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())
print(content.table.num_rows, int(peak) // 1024)
"""


def columns_of(rows: int, given: Mapping[str, Any]) -> Any:
    """A table of a journal; columns that are not given have no value."""
    known = {"session_id": repeated(A, rows), **given}
    columns = {each.name: known.get(each.name, pa.nulls(rows, each.type)) for each in SCHEMA}
    return pa.table(columns)


def repeated(text: str, rows: int) -> Any:
    """A column with the same text in each row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [text])


def sealed(folder: Path, table: Any, **options: Any) -> Path:
    """A journal with one session of one sealed segment."""
    (folder / A).mkdir(parents=True, exist_ok=True)
    path = folder / A / "000001.parquet"
    pq.write_table(table, path, compression="zstd", store_schema=False, **options)
    return folder


def damage(folder: Path) -> str:
    """What is said of the only segment of a journal that is damaged."""
    (state,) = read_journal(folder).sessions
    assert state.rows == 0
    (found,) = state.damaged
    assert found.startswith("segment 000001.parquet: it is not readable: ")
    return found


def log_of(count: int, batches: int, text: str, *, offsets: bool = True) -> bytes:
    """A log whose rows all have this text."""
    log = header_frame(SegmentHeader(A, "billing", 1), 0).data
    for number in range(batches):
        columns = ColumnArrays({}, {"kind": (["ATTEMPT"], [count]), "error": ([text], [count])})
        if offsets:
            columns.plain["offset"] = plain("offset", range(count))
        log += b"".join(frame.data for frame in frames(RowBatch(number * count, count, columns)))
    return log


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("suffix", [".parquet", ".log"])
def test_a_text_that_millions_of_rows_repeat_is_kept_once(tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        rows = 2_000_000
        sealed(tmp_path, columns_of(rows, {"error": repeated("x" * 1000, rows)}))
        assert (tmp_path / A / "000001.parquet").stat().st_size < 400_000
    else:
        rows = 16_384 * 40
        (tmp_path / A).mkdir()
        (tmp_path / A / "000001.log").write_bytes(log_of(16_384, 40, "x" * 4096))
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read, megabytes = map(int, done.stdout.split())
    assert read == rows
    # About 300 with one copy of the text, and more than 2,000 with one for each row.
    assert megabytes < 400


def test_a_journal_whose_rows_take_too_much_memory_is_rejected_by_file(tmp_path: Path) -> None:
    rows = 200_000
    numbers = pa.repeat(pa.scalar(1, pa.int64()), rows)
    sealed(tmp_path, columns_of(rows, {"offset": numbers, "at_us": numbers}))
    assert read_journal(tmp_path, 2**25).table.num_rows == rows
    with pytest.raises(ConfigError, match="exceed the limit of") as rejected:
        read_journal(tmp_path, 2**21)
    assert str(tmp_path / A / "000001.parquet") in str(rejected.value)


def test_a_log_whose_rows_take_too_much_memory_is_rejected_by_file(tmp_path: Path) -> None:
    (tmp_path / A).mkdir()
    (tmp_path / A / "000001.log").write_bytes(log_of(16_384, 8, "x"))
    assert read_journal(tmp_path, 2**24).table.num_rows == 8 * 16_384
    with pytest.raises(ConfigError, match="exceed the limit of") as rejected:
        read_journal(tmp_path, 2**20)
    assert "000001.log" in str(rejected.value)


def test_a_log_with_more_rows_than_bytes_is_damaged() -> None:
    content = read_blob(log_of(16_384, 100, "x", offsets=False))
    assert "larger than a journal writes" in (content.damaged or "")
    assert sum(batch.num_rows for batch in content.batches) < 2**17


def test_pages_that_declare_too_much_are_rejected_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(tmp_path, columns_of(2, {"error": pa.array(["x" * 9_000, "y" * 9_000])}))
    assert read_journal(tmp_path).table.num_rows == 2
    monkeypatch.setattr(pages, "_MOST_BYTES", 2**14)
    assert "the pages of a row group are larger than a journal writes" in damage(tmp_path)


def test_a_row_group_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    rows = 2**20 + 1
    sealed(tmp_path, columns_of(rows, {}), row_group_size=rows)
    assert f"a row group of {rows} rows is larger than a journal writes" in damage(tmp_path)


def test_an_encoding_that_repeats_texts_is_rejected(tmp_path: Path) -> None:
    table = columns_of(1000, {"error": pa.array(["x" * 5000] * 1000)})
    sealed(tmp_path, table, use_dictionary=False, column_encoding={"error": "DELTA_BYTE_ARRAY"})
    assert "column 'error' has a page of the encoding 7" in damage(tmp_path)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([["a"], ["b"]]), "journals have no column 'error.list.element'"),
        (pa.array([1, 2]), "the type int64"),
        (pa.array([b"a", b"b"]), "the type"),
        (pa.array([1.5, 2.5]), "the type DOUBLE"),
        (pa.array(["x" * (2**20 + 1), "y"]), "has a text of 1048577 bytes"),
        (pa.array([b"\xff\xfe", b"b"]).view(pa.string()), "UTF8"),
    ],
    ids=["list", "number", "bytes", "double", "long", "surrogate"],
)
def test_a_column_that_no_version_writes_is_damage(
    tmp_path: Path, column: Any, problem: str
) -> None:
    sealed(tmp_path, columns_of(2, {"error": column}))
    assert problem in damage(tmp_path)


def test_two_columns_of_one_name_are_damage(tmp_path: Path) -> None:
    table = columns_of(2, {})
    sealed(tmp_path, table.append_column("error", pa.array(["a", "b"])))
    assert "two columns of one name" in damage(tmp_path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x15\x00\x05\x02\x00\x00", "out of order"),
        (b"\x15\x80\x00\x00", "longer than it needs to be"),
        (b"\x15" + b"\xff" * 11, "too long"),
        (b"\x19\x00\x00", "a field of the type 9"),
        (b"\x1c\x1c\x1c\x1c\x00", "nested too deeply"),
    ],
)
def test_a_page_header_that_readers_may_understand_differently_is_rejected(
    data: bytes, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        pages._Header(data).read()


@pytest.mark.parametrize("name", ["000001.log", "000001.parquet"])
def test_a_file_of_a_terabyte_without_content_is_rejected_at_once(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / A).mkdir()
    with (tmp_path / A / name).open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ConfigError, match="more than any file of a journal") as rejected:
        read_journal(tmp_path)
    assert name in str(rejected.value)


def test_a_segment_is_no_larger_than_what_is_read(tmp_path: Path) -> None:
    Journal(tmp_path, segment_bytes=2**32)
    with pytest.raises(ConfigError, match="use 1 to 4294967296"):
        Journal(tmp_path, segment_bytes=2**32 + 1)


def test_many_missing_rows_and_sessions_are_told_in_few_words(tmp_path: Path) -> None:
    rows = 50_000
    ids = pa.array([f"20260102T030405Z-{number:08x}" for number in range(rows)])
    seq = pa.array(range(0, 2 * rows, 2))
    sealed(tmp_path, columns_of(rows, {"session_id": ids, "seq": seq}))
    (state,) = read_journal(tmp_path).sessions
    assert len(state.missing) == 10_000
    assert (state.missing[0], state.missing[-1]) == ((1, 1), (19_999, 2 * rows - 3))
    assert len(str(state.damaged)) < 500
    assert f"and of {rows - 2} others" in state.damaged[0]


def test_facts_that_are_longer_than_any_are_not_decoded() -> None:
    assert facts_of(json.dumps({"a": [1] * 100})) == {"a": [1] * 100}
    assert facts_of(json.dumps({"a": [[]] * 2**20})) == {}


def test_rows_of_several_sessions_are_ordered_by_time(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    table = read_journal(tmp_path).table
    rows = sorted(table.to_pylist(), key=lambda row: (row["at_us"], row["session_id"], row["seq"]))
    assert {row["session_id"] for row in rows} == {A, B}
    assert by_time(table, len(rows)).to_pylist() == rows
    assert by_time(table, 3).to_pylist() == rows[-3:]
    assert by_time(table.slice(0, 0), 3).to_pylist() == []
