"""What the views of a journal say of two members that work one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("duckdb", reason="needs the extra audit")

from unit.journal.written_journal import MS, START, STEP, TOPIC, A, B, at, clean_run

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.views import open_views

if TYPE_CHECKING:
    from pathlib import Path


def moment(us: int) -> datetime:
    """As DuckDB gives it: in UTC, without saying so."""
    return datetime(1970, 1, 1) + timedelta(microseconds=us)  # noqa: DTZ001


def asked(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with open_views(folder) as database:
        found: list[tuple[Any, ...]] = database.sql(query).fetchall()
        return found


BEGAN_B = START + 50 * STEP - MS
END_A = START + 50 * STEP + STEP
END_B = START + 100 * STEP + STEP


def test_ownership_has_a_row_for_each_assignment_and_how_it_ended(tmp_path: Path) -> None:
    a, b = clean_run()
    b.end = []  # killed
    a.write(tmp_path)
    b.write(tmp_path)
    found = asked(
        tmp_path,
        'SELECT session_id, "group", member, generation, topic, "partition", "offset", since, '
        "until, ended_by FROM ownership ORDER BY session_id",
    )
    assert found == [
        (A, "billing", "a", 1, TOPIC, 0, 0, moment(START - MS), moment(END_A - 2 * MS), "RELEASED"),
        (B, "billing", "b", 2, TOPIC, 0, 50, moment(BEGAN_B), None, None),
    ]


def test_a_rebalance_is_from_the_first_revocation_to_the_last_assignment(tmp_path: Path) -> None:
    a, b = clean_run()
    # Revoked, and given another partition by the next generation.
    a.end.insert(2, a.fact(RowKind.ASSIGN, END_A, 7, 2)._replace(partition=4))
    a.end[3] = a.end[3]._replace(at=END_A + STEP)
    a.end.insert(3, a.fact(RowKind.LOST, END_A + MS, None, 2)._replace(partition=4))
    a.write(tmp_path)
    b.write(tmp_path)
    found = asked(
        tmp_path,
        "SELECT session_id, generation, began, seconds, released, lost, withdrawn, assigned "
        "FROM rebalances ORDER BY began",
    )
    assert [row for row in found if row[0] == A] == [
        (A, 1, moment(START - MS), 0.0, 0, 0, 0, 1),
        (A, 2, moment(END_A - 4 * MS), 0.004, 1, 0, 0, 1),
        (A, 2, moment(END_A + MS), 0.0, 0, 1, 0, 0),
    ]


def test_durations_are_those_of_calls_with_their_outcome(tmp_path: Path) -> None:
    a, b = clean_run()
    failed = a.attempt(3, at(3), at(3) + 9 * MS)._replace(
        outcome=CallOutcome.RETRIED, error=KeyError("no")
    )
    a.more.append(failed)
    a.write(tmp_path)
    b.write(tmp_path)
    found = asked(
        tmp_path,
        'SELECT "offset", outcome, error_type, started, seconds FROM handler_durations '
        "ORDER BY seconds DESC, 1 LIMIT 2",
    )
    assert found == [
        (3, "retried", "KeyError", moment(at(3)), 0.009),
        (0, "ok", None, moment(at(0)), 0.005),
    ]
    assert asked(tmp_path, "SELECT count(*) FROM handler_durations") == [(101,)]


def test_a_stall_is_between_the_last_call_of_one_owner_and_the_first_of_the_next(
    tmp_path: Path,
) -> None:
    a, b = clean_run()
    del b.attempts[50]
    del b.attempts[51]
    a.write(tmp_path)
    b.write(tmp_path)
    found = asked(tmp_path, 'SELECT * EXCLUDE (topic, "partition") FROM stalls')
    stopped, resumed = at(49) + 5 * MS, at(52)
    seconds = (resumed - stopped) / 1_000_000
    assert found == [("billing", A, B, moment(stopped), moment(resumed), seconds)]


def test_an_empty_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_views(tmp_path / "none")


@pytest.mark.parametrize(
    "query",
    [
        "COPY journal TO '{}/rows.csv'",
        "SELECT * FROM read_text('{}/secret')",
        "SET enable_external_access = true",
        "SELECT * FROM secret",
    ],
)
def test_no_query_of_the_views_reaches_files_settings_or_variables(
    tmp_path: Path, query: str
) -> None:
    run, _ = clean_run()
    run.write(tmp_path / "journal")
    (tmp_path / "secret").write_text("planted")
    secret = pa.table({"word": ["planted"]})
    expected = "(?i)disabled|locked|does not exist"
    with open_views(tmp_path / "journal") as database, pytest.raises(Exception, match=expected):
        database.execute(query.format(tmp_path))
    assert secret.num_rows == 1
    assert not (tmp_path / "rows.csv").exists()


def test_times_are_in_utc(tmp_path: Path) -> None:
    for member in clean_run():
        member.write(tmp_path)
    ((since,),) = asked(tmp_path, "SELECT min(since) FROM ownership")
    assert since.replace(tzinfo=UTC).timestamp() == (START - MS) / 1_000_000
