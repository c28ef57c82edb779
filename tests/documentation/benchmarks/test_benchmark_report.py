"""The report of the benchmarks: what is in its tables is what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.clients.java_clients import Told
from benchmarks.clients.raw_clients import Meter
from benchmarks.report.printing import spread
from benchmarks.report.results import Found, page, sections, write_report
from benchmarks.workload.handler_work import Counting

if TYPE_CHECKING:
    from pathlib import Path

OURS, THEIRS = "asyncrevoke, async for", "aiokafka, getmany()"


PLAIN: Found = {"surroundings": {}, "command": "", "minutes": 1.0}


def raw(**other: object) -> dict[str, Found]:
    found: Found = {
        "surroundings": {"Python": "3.11"},
        "records_per_second": {OURS: [100.0, 300.0, 200.0], THEIRS: [50.0, 100.0, 150.0], "x": []},
        "records_per_cpu_second": {OURS: [1.0, 1.0, 1.0], THEIRS: [2.0, 2.0, 2.0], "x": []},
        "failed": {"x": "ModuleNotFoundError:\n no | module", THEIRS: "it died"},
        "records": 1000,
        "size": 100,
        "command": "python -m benchmarks.raw_iteration",
        "minutes": 1.0,
    }
    return {"raw": found | other}


def test_a_table_has_medians_spreads_and_ratios_and_names_what_was_left_out() -> None:
    text = page(raw())
    (row, ended) = [line for line in text.splitlines() if THEIRS in line]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        THEIRS,
        "100 (50 to 150)",
        "2 (2 to 2)",
        "2.00",
    ]
    (row,) = [line for line in text.splitlines() if line.startswith("| x ")]
    assert "left out because ModuleNotFoundError: no \\| module" in row
    # It has results, of the rounds before.
    assert ended == f"- {THEIRS}: it died"


def test_steps_that_were_measured_with_other_versions_are_named() -> None:
    same = raw()["raw"]
    other = raw(surroundings={"Python": "3.13"})["raw"]
    assert "\nPython 3.11.\n" in page({"raw": same, "large": same})
    text = page({"raw": same, "large": other, "large-10k": same})
    assert "\nPython 3.11 (raw, large-10k), 3.13 (large).\n" in text


def test_there_is_no_ratio_to_what_is_shown_as_nothing() -> None:
    rows = [
        {"client": client, "drain": 0.0, "stall": stall, "first_record": 1.0}
        for client, stall in (("asyncrevoke cooperative-sticky", 0.004), ("a", 0.003), ("b", 0.1))
    ]
    text = page({"stall": {"measured": rows, "failed": {}, **PLAIN}})
    ratios = [line.split("|")[-2].strip() for line in text.splitlines() if "1.00 (1.00" in line]
    assert ratios == ["", "", "0.00"]


def test_each_section_has_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench")
    write_report(raw(), tmp_path)
    assert (tmp_path / "results.md").read_text() == page(raw())
    picture = (tmp_path / "raw.svg").read_text()
    assert picture.startswith("<?xml")
    assert "@media (prefers-color-scheme: dark)" in picture


@pytest.mark.parametrize("step", ["large", "large-100k", "large-10k"])
def test_large_records_count_by_their_bytes(step: str) -> None:
    (section,) = sections({step: raw(size=1_000_000)["raw"]})
    assert section.measures[0].rounds[THEIRS] == [50.0, 100.0, 150.0]
    assert section.measures[0].title == "MB/s"


def test_latencies_are_in_milliseconds() -> None:
    delays = {"rate": 1.0, "cpu_rate": 1.0, "delay_p50": 0.001, "delay_p99": 0.0025}
    found: Found = {"latency": {"a": [delays]}, "failed": {"latency": {"b": "not done"}}}
    (section,) = sections({"latency": found})
    assert section.measures[0].rounds == {"a": [2.5]}
    assert section.failed == {"b": "not done"}


def test_each_drain_is_a_section_of_its_own() -> None:
    rows = [
        {"client": "a", "drain": drain, "stall": drain / 2, "first_record": 1.0}
        for drain in (2.0, 0.0)
    ]
    found: Found = {"measured": rows, "failed": {"b, drain 2 s": "it died"}}
    none, two = sections({"stall": found})
    assert "0.00 (0.00 to 0.00)" in page({"stall": found | PLAIN}), "there is no ratio to nothing"
    assert (none.name, none.measures[0].rounds) == ("stall-0", {"a": [0.0]})
    assert (two.name, two.measures[0].rounds) == ("stall-2", {"a": [1.0], "b": []})
    assert (none.failed, two.failed) == ({}, {"b": "it died"})


def test_a_section_in_which_every_client_failed_has_no_picture(tmp_path: Path) -> None:
    nothing = raw(records_per_second={OURS: []}, failed={OURS: "no broker"})
    assert "left out because no broker" in page(nothing)
    assert "raw.svg" not in page(nothing)
    pytest.importorskip("matplotlib", reason="the extra bench")
    write_report(nothing, tmp_path)
    assert not (tmp_path / "raw.svg").exists()


def test_a_spread_has_the_median_first() -> None:
    assert spread([3.0, 1000.0, 2000.0], 1) == "1,000.0 (3.0 to 2,000.0)"


def test_what_came_in_the_first_batch_does_not_count() -> None:
    meter = Meter(30)
    meter.report(Told(records=30, size=3000, seconds=2.0, cpu=4.0, first=10))
    assert meter.rates() == (10.0, 5.0)
    at_once = Meter(10)
    at_once.add(10, 1000)
    with pytest.raises(ValueError, match="first batch"):
        at_once.rates()


def test_a_separate_program_reports_what_it_has_measured() -> None:
    counting = Counting(5)
    counting.report(Told(records=5, size=500, seconds=2.0, cpu=4.0, first=1))
    assert counting.finished.is_set()
    assert (counting.measured().rate, counting.measured().cpu_rate) == (2.5, 1.25)
