"""What tasks make of the values of a topic that anybody may have written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("pyarrow", reason="needs the extra spark")

from unit.journal.topic.test_collected_journals import by_runs, log_of, piece
from unit.journal.written_journal import A, B

from asyncrevoke.spark.arrow import pa
from asyncrevoke.spark.audits.journal import rows_of_logs, rows_of_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.spark.arrow import ArrowRecordBatch


def values(*blobs: bytes) -> Iterator[ArrowRecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": list(blobs)})


def sessions_of(batches: Iterator[ArrowRecordBatch]) -> list[str]:
    return [name for batch in batches for name in batch.column("session_id").to_pylist()]


@pytest.mark.parametrize(
    "hostile",
    [
        log_of(A, by_runs(0, 2**17 + 1)),
        log_of(A, by_runs(0, 2**15, "x" * 4096)),
        piece(A) + bytes(2**20),
    ],
    ids=["rows", "texts", "bytes"],
)
def test_a_value_beyond_the_limits_of_collect_has_no_rows(
    hostile: bytes, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    found = sessions_of(rows_of_pieces(values(hostile, piece(B))))
    assert found == [B] * len(found)
    assert len(found) == 11
    assert "journal value damaged" in caplog.text + capsys.readouterr().err


def test_a_log_gives_its_batches_one_at_a_time() -> None:
    rows = rows_of_logs(values(log_of(A, by_runs(0, 2**17 + 1))))
    assert next(rows).num_rows == 65_536
    assert len(sessions_of(rows)) == 65_537
