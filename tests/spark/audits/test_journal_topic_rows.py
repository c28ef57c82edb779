"""What tasks make of the values of a topic that anybody may have written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("pyarrow", reason="needs the extra spark")

from unit.journal.topic.test_collected_journals import by_runs, log_of, piece
from unit.journal.written_journal import A, B

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch, Value
from asyncrevoke.journal.format.frames import Frame, frames
from asyncrevoke.spark.audits.journal import rows_of_logs, rows_of_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch


def values(*blobs: bytes) -> Iterator[ArrowRecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": list(blobs)})


def logs(*blobs: bytes) -> Iterator[ArrowRecordBatch]:
    paths = [f"file:/journal/{B}/00000{number}.log" for number in range(1, len(blobs) + 1)]
    yield pa.RecordBatch.from_pydict({"path": paths, "content": list(blobs)})


def sessions_of(batches: Iterator[ArrowRecordBatch]) -> list[str]:
    return [name for batch in batches for name in batch.column("session_id").to_pylist()]


def one_by_one(rows: int) -> list[Frame]:
    """Rows with different texts."""
    texts: list[Value] = [f"{row:x}" for row in range(rows)]
    columns = ColumnArrays({}, {"kind": (["ATTEMPT"], [rows]), "error": (texts, [1] * rows)})
    return list(frames(RowBatch(0, rows, columns)))


@pytest.mark.parametrize(
    ("hostile", "named"),
    [
        # What was written without a byte for each row ends a value, like any damage.
        (log_of(A, by_runs(0, 2**17 + 1)), [A]),
        (log_of(A, one_by_one(2**17 + 1)), []),
        (log_of(A, by_runs(0, 2**15, "x" * 4096)), []),
        (piece(A) + bytes(2**20), []),
    ],
    ids=["rows without bytes", "rows", "texts", "bytes"],
)
def test_a_value_beyond_the_limits_of_collect_has_no_rows_beyond_them(
    hostile: bytes, named: list[str], capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    *damaged, whole = rows_of_pieces(values(hostile, piece(B)))
    assert sessions_of(iter([whole])) == [B] * 11
    assert sessions_of(iter(damaged)) == named
    assert all(batch.column("kind").to_pylist() == ["DAMAGED"] for batch in damaged)
    assert "journal value damaged" in caplog.text + capsys.readouterr().err


def test_a_log_gives_its_batches_one_at_a_time() -> None:
    rows = rows_of_logs(logs(log_of(A, one_by_one(2**17 + 1))))
    assert next(rows).num_rows == 65_536
    assert len(sessions_of(rows)) == 65_537


def test_a_damaged_log_says_so_in_a_row_and_its_rows_are_of_its_folder() -> None:
    log = bytearray(log_of(A, one_by_one(20)))
    # A byte of the header.
    log[40] ^= 1
    *rows, damaged = rows_of_logs(logs(bytes(log)))
    assert sessions_of(iter(rows)) == [B] * 20
    assert damaged.column("kind").to_pylist() == ["DAMAGED"]
    assert damaged.column("session_id").to_pylist() == [B]
    assert "changed" in damaged.column("facts").to_pylist()[0]
