"""The matrix in docs/reference/guarantees.md is what was measured, and names every fault."""

from __future__ import annotations

from chaos.environment.group import PROTOCOLS
from chaos.matrix import PAGE, Cell, measured, page, rows, table
from chaos.scenario import FAULTS


def test_the_documentation_page_contains_the_measured_results() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text, measured()), "run: PYTHONPATH=.:tests python -m chaos.matrix"


def test_each_fault_has_a_row_and_each_protocol_a_column() -> None:
    assert {fault.name for fault, _ in rows()} == set(FAULTS)
    head, _, *lines = table([]).splitlines()
    assert head.count("|") == len(PROTOCOLS) + 3
    assert len(lines) == len(rows())
    assert all(line.count("not measured") == len(PROTOCOLS) for line in lines)


def test_a_failed_run_is_shown_as_failed() -> None:
    def cell(*, kept: bool) -> Cell:
        return Cell(
            fault="kill",
            brokers=1,
            protocol="consumer",
            lost=0,
            repeated=12,
            out_of_order=0,
            stall=6.25,
            kept=kept,
        )

    assert "| 0 / 12 / 0 / 6.2 s |" in table([cell(kept=True)])
    assert "| **0 / 12 / 0 / 6.2 s** |" in table([cell(kept=False)])
