"""Reports are written where the user says, whatever lies there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from unit.journal.written_journal import audited, clean_run

import asyncrevoke
from asyncrevoke.audit.results.report import write_report
from asyncrevoke.web.pages.report_file import write_report_file


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_report_replaces_a_link_and_writes_nothing_through_it(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "report"
    victim.write_text("untouched")
    folder.mkdir()
    for name in ("report.html", "report.json"):
        (folder / name).symlink_to(victim)
    members = clean_run()
    members[0].write(tmp_path / "journal")
    write_report(audited(tmp_path / "journal", members[1]), folder)
    assert victim.read_text() == "untouched"
    for name in ("report.html", "report.json"):
        assert not (folder / name).is_symlink()
        assert (folder / name).stat().st_size > 100
    assert len(list(folder.iterdir())) == 2


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match="report"):
        write_report_file(tmp_path / "report.html", "page")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_reports_and_pictures_are_written_by_one_function() -> None:
    """Another way to write a file would follow a link that somebody has put at its path."""
    package = Path(asyncrevoke.__file__).parent
    others = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if re.search(r"\.write_(text|bytes)\(|open\(\s*[\"']w", path.read_text("utf-8"))
    ]
    # The certificates and logs of a broker or a demo, and the application's files on a Spark
    # worker, each in a new folder of its own.
    assert others == [
        "broker/listeners/security.py",
        "cli/demo/group.py",
        "spark/replays/rows_task.py",
    ]
