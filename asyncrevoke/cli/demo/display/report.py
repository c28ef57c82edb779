"""The report at the end of the demo, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.cli.demo.judge import GroupResult, Stall


class RunSummary(TypedDict):
    """One group's result, as ``--json`` prints it; times are seconds."""

    ok: bool
    produced: int
    handled: int
    lost: int
    unfinished: int
    repeated: int
    repeated_after_kill: int
    uncommitted: int
    order_violations: int
    longest_stall: float
    longest_stall_partition: int | None
    longest_hand_over: float
    latency_median: float
    latency_p99: float


def faults(verdict: GroupResult, *, max_stall: float | None) -> list[str]:
    """What is wrong with a run, in words."""
    found: list[str] = []
    counts = {
        "lost": verdict.lost,
        "not handled in time": verdict.unfinished,
        "handled twice": sorted(set(verdict.repeated) - set(verdict.excused)),
        "handled and not committed": verdict.uncommitted,
        "out of order": verdict.disorder,
    }
    found += [f"{len(each)} {name}" for name, each in counts.items() if each]
    if max_stall is not None and verdict.longest_stall > max_stall:
        found.append(
            f"a kept partition stood still for {verdict.longest_stall:.2f} s (at most "
            f"{max_stall:g} s are allowed)"
        )
    return found


def facts(verdict: GroupResult, *, ok: bool) -> RunSummary:
    """The result for machines."""
    return RunSummary(
        ok=ok,
        produced=verdict.produced,
        handled=verdict.handled,
        lost=len(verdict.lost),
        unfinished=len(verdict.unfinished),
        repeated=len(verdict.repeated),
        repeated_after_kill=len(verdict.excused),
        uncommitted=len(verdict.uncommitted),
        order_violations=len(verdict.disorder),
        longest_stall=round(verdict.longest_stall, 3),
        longest_stall_partition=verdict.stall.partition.partition if verdict.stall else None,
        longest_hand_over=round(verdict.hand_over.seconds if verdict.hand_over else 0.0, 3),
        latency_median=round(verdict.latency_median, 3),
        latency_p99=round(verdict.latency_p99, 3),
    )


def table(verdicts: Mapping[str, GroupResult]) -> Table:
    """The result for people, one column for each group."""
    result = Table(box=None, pad_edge=False)
    result.add_column("")
    for name in verdicts:
        result.add_column(name, justify="right")

    def count(label: str, values: list[int], *, bad: bool = True) -> None:
        cells = [
            Text(f"{value:,}", style="bold red" if value and bad else "green" if bad else "")
            for value in values
        ]
        result.add_row(label, *cells)

    each = list(verdicts.values())
    count("orders", [verdict.produced for verdict in each], bad=False)
    count("handled", [verdict.handled for verdict in each], bad=False)
    count("lost", [len(verdict.lost) for verdict in each])
    if any(verdict.unfinished for verdict in each):
        count("not handled in time", [len(verdict.unfinished) for verdict in each])
    count("handled twice", [len(v.repeated) - len(v.excused) for v in each])
    if any(verdict.excused for verdict in each):
        count(
            "handled twice, uncommitted at the kill",
            [len(verdict.excused) for verdict in each],
            bad=False,
        )
    if any(verdict.uncommitted for verdict in each):
        count("handled, not committed", [len(verdict.uncommitted) for verdict in each])
    count("order violations by key", [len(verdict.disorder) for verdict in each])
    result.add_row("longest stall of a kept partition", *(_seconds(v.stall) for v in each))
    result.add_row("longest hand-over, drain included", *(_seconds(v.hand_over) for v in each))
    result.add_row(
        "latency, median / 99 %",
        *(f"{v.latency_median:.2f} / {v.latency_p99:.2f} s" for v in each),
    )
    return result


def _seconds(stall: Stall | None) -> str:
    if stall is None:
        return "-"
    return f"{stall.seconds:.2f} s (partition {stall.partition.partition})"
