"""The bookkeeping of the benchmark of exactly-once results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.clients.java_clients import Told
from benchmarks.exactly_once.__main__ import SCENARIOS, Report, Row
from benchmarks.exactly_once.clients import CLIENTS, OURS, STREAMS
from benchmarks.exactly_once.stall import FIRST, SECOND, judged
from benchmarks.exactly_once.turn import Task, Turn
from benchmarks.exactly_once.visible import percentiles
from benchmarks.report.printing import MeasurementError
from benchmarks.report.results import EXACTLY_ONCE, Found, page, sections, write_report
from benchmarks.workload.handler_work import Measured

if TYPE_CHECKING:
    from pathlib import Path

TASK = Task("", "", "", "", total=20)
PLAIN: Found = {"surroundings": {}, "command": "", "minutes": 1.0, "failed": {}}


async def test_a_turn_is_measured_from_a_tenth_of_the_records_until_all_are_committed() -> None:
    turn = Turn(TASK)
    for _ in range(20):
        assert not turn.finished.is_set()
        await turn.handle()
    assert turn.finished.is_set()
    turn.committed()
    measured = turn.measured()
    assert measured.records == 18
    assert measured.seconds > 0


def test_a_loop_is_done_after_as_many_records_and_reports_more() -> None:
    turn = Turn(TASK)
    while not turn.is_done():
        for _ in range(6):
            turn.handle_blocking()
    turn.committed()
    assert turn.records == 24
    assert turn.measured().records == 22


def test_a_program_reports_the_time_after_its_first_records() -> None:
    turn = Turn(TASK)
    turn.report(Told(20, 2000, 0.5, 0.25, 2))
    assert turn.measured() == Measured(18, 0.5, 0.25)


def test_every_scenario_has_clients_and_a_section() -> None:
    assert SCENARIOS.keys() == EXACTLY_ONCE.keys()
    for scenario in SCENARIOS.values():
        assert scenario.clients[0] == OURS
        assert CLIENTS.keys() >= set(scenario.clients)
        assert scenario.records or scenario.has_latency


def test_ratios_are_those_to_ours_with_the_same_interval() -> None:
    report = Report("intervals", [OURS, STREAMS])
    report.rows = [
        Row(OURS, 0.01, [Measured(100, 1.0, 1.0)], []),
        Row(STREAMS, 0.01, [Measured(100, 4.0, 2.0)], []),
        Row(OURS, 1.0, [Measured(100, 0.5, 1.0)], []),
        Row(STREAMS, 1.0, [Measured(100, 1.0, 5.0)], []),
    ]
    fast, slow = (line for line in report.text().splitlines() if STREAMS in line)
    assert "4.00 (4.00" in fast
    assert "2.00 (2.00" in slow


def test_percentiles_are_of_all_delays() -> None:
    p50, p99, highest = percentiles([number / 1000 for number in range(1, 1001)])
    assert (p50, p99) == pytest.approx((0.5, 0.99), abs=0.002)
    assert highest == 1.0


def test_gaps_are_those_of_kept_partitions() -> None:
    handled = {(FIRST, 0): [6.0, 9.0, 10.5, 12.0], (FIRST, 1): [9.0], (SECOND, 1): [12.0]}
    visible = {(FIRST, 0): [7.0, 9.5, 13.0], (FIRST, 1): [9.5], (SECOND, 1): [12.5]}
    measured = judged("a", handled, visible, start=10.0, until=14.0)
    assert (measured.kept, measured.moved) == (1, 1)
    assert (measured.handler_gap, measured.handler_gap_before) == (1.5, 2.0)
    assert measured.stall == 0.0
    assert (measured.visible_gap, measured.first_result) == (3.0, 2.5)


def test_a_member_that_keeps_nothing_is_not_measured() -> None:
    times = {(FIRST, 0): [1.0], (SECOND, 0): [2.0]}
    with pytest.raises(MeasurementError, match="0 partitions were kept and 1 moved"):
        judged("a", times, times, 0.0, 3.0)


def test_the_page_has_rates_latencies_and_stalls() -> None:
    rate = {"rate": 2000.0, "cpu_rate": 4000.0}
    late = {"delay_p99": 0.12, "delay_p50": 0.06}

    def row(client: str, interval: float) -> Found:
        return {"client": client, "interval": interval, "rates": [rate], "latencies": [late]}

    stall = dict.fromkeys(("visible_gap", "visible_gap_before", "stall", "first_result"), 0.11)
    text = page(
        {
            "exactly-once": {"intervals": [row(OURS, 0.01), row(STREAMS, 0.01)], **PLAIN},
            "exactly-once-stall": {
                "measured": [{"client": "asyncrevoke cooperative-sticky", **stall}],
                "interval": 0.1,
                "drain": 2.0,
                **PLAIN,
            },
        }
    )
    assert f"| {STREAMS}, 10 ms | 2,000 (2,000 to 2,000)" in text
    assert "120 (120 to 120)" in text
    assert "0.11 (0.11 to 0.11)" in text
    assert "2 s of work to finish" in text


def test_the_picture_of_intervals_has_a_line_for_each_client(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench")
    rows = [
        {
            "client": client,
            "interval": interval,
            "rates": [{"rate": 100.0 / interval, "cpu_rate": 100.0}],
            "latencies": [{"delay_p99": interval, "delay_p50": interval / 2}],
        }
        for interval in (0.01, 0.1, 1.0)
        for client in (OURS, STREAMS)
    ]
    results: dict[str, Found] = {"exactly-once": {"intervals": rows, **PLAIN}}
    (section,) = sections(results)
    assert section.lines[0][OURS] == [(0.01, 10_000.0), (0.1, 1_000.0), (1.0, 100.0)]
    write_report(results, tmp_path)
    assert (
        (tmp_path / "exactly-once" / "exactly-once-intervals.svg").read_text().startswith("<?xml")
    )
