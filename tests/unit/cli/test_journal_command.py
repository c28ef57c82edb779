"""``asyncrevoke journal show``: which rows are printed, and what is rejected."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner
from unit.journal.written_journal import clean_run

from asyncrevoke.cli.journal import journal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    member, _ = clean_run()
    member.write(tmp_path)
    return tmp_path


def test_show_prints_the_rows_of_one_kind(written: Path) -> None:
    everything = CliRunner().invoke(journal, ["show", str(written), "--json", "--limit", "10000"])
    kinds = [json.loads(line)["kind"] for line in everything.stdout.splitlines()]
    shown = CliRunner().invoke(journal, ["show", str(written), "--kind", "commit", "--json"])
    assert shown.exit_code == 0
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["COMMIT"] * kinds.count("COMMIT")
    assert 0 < len(rows) < len(kinds)


def test_show_rejects_an_unknown_kind_and_lists_the_known_ones(written: Path) -> None:
    result = CliRunner().invoke(journal, ["show", str(written), "--kind", "fetch"])
    assert result.exit_code == 2
    assert "--kind fetch" in result.stderr
    assert "FETCHED" in result.stderr


@pytest.mark.parametrize("command", ["show", "check", "seal"])
def test_a_missing_package_is_named_with_the_extra_to_install(
    written: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("asyncrevoke.journal.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = CliRunner().invoke(journal, [command, str(written)])
    assert result.exit_code == 2
    assert "pip install 'asyncrevoke[cli,journal]'" in result.stderr
    assert "pyarrow" in result.stderr
