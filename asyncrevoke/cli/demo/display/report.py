"""The report at the end of the demo, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from asyncrevoke.cli.terminal import print_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.cli.demo.group_result import GroupResult, Stall
    from asyncrevoke.cli.demo.member.handler_log import Client


def faults(result: GroupResult, *, max_stall: float | None) -> list[str]:
    """One phrase for each fault: records lost, repeated or out of order, and long stalls."""
    found: list[str] = []
    counts = {
        "lost": result.lost,
        "not handled in time": result.unfinished,
        "handled twice": sorted(set(result.repeated) - set(result.permitted_repeats)),
        "handled and not committed": result.uncommitted,
        "out of order": result.disorder,
    }
    if (results := result.results) is not None:
        counts |= {
            "without a visible result": results.missing,
            "with several visible results": results.doubled,
            "with a result out of order": results.out_of_order,
        }
    found += [f"{len(count)} {name}" for name, count in counts.items() if count]
    if max_stall is not None and result.longest_stall > max_stall:
        found.append(
            f"a kept partition stalled for {result.longest_stall:.2f} s (at most {max_stall:g} s "
            "are allowed)"
        )
    return found


def facts(result: GroupResult, *, ok: bool) -> dict[str, float | None]:
    """A group's result as ``--json`` prints it. Times are in seconds."""
    of_results: dict[str, float | None] = {}
    if (results := result.results) is not None:
        of_results = {
            "results_visible": results.visible,
            "results_missing": len(results.missing),
            "results_doubled": len(results.doubled),
            "results_out_of_order": len(results.out_of_order),
        }
    return {
        "ok": ok,
        "produced": result.produced,
        "handled": result.handled,
        "lost": len(result.lost),
        "unfinished": len(result.unfinished),
        "repeated": len(result.repeated),
        "repeated_after_kill": len(result.permitted_repeats),
        "uncommitted": len(result.uncommitted),
        "order_violations": len(result.disorder),
        "longest_stall": round(result.longest_stall, 3),
        "longest_stall_partition": result.stall.partition.partition if result.stall else None,
        "longest_hand_over": round(result.hand_over.seconds if result.hand_over else 0.0, 3),
        "latency_median": round(result.latency_median, 3),
        "latency_p99": round(result.latency_p99, 3),
        **of_results,
    }


def table(results: Mapping[Client, GroupResult]) -> Table:
    """The results, one column for each group."""
    of_groups = list(results.values())
    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for client in results:
        shown.add_column(client.value, justify="right")

    def count(label: str, values: list[int], *, bad: bool = True, always: bool = True) -> None:
        if always or any(values):
            styles = ["bold red" if value and bad else "green" if bad else "" for value in values]
            cells = map(Text, (f"{value:,}" for value in values), styles)
            shown.add_row(label, *cells)

    count("orders", [result.produced for result in of_groups], bad=False)
    count("handled", [result.handled for result in of_groups], bad=False)
    count("lost", [len(result.lost) for result in of_groups])
    count("not handled in time", [len(result.unfinished) for result in of_groups], always=False)
    count(
        "handled twice",
        [len(result.repeated) - len(result.permitted_repeats) for result in of_groups],
    )
    permitted = [len(result.permitted_repeats) for result in of_groups]
    count("handled twice, uncommitted at the kill", permitted, bad=False, always=False)
    count("handled, not committed", [len(result.uncommitted) for result in of_groups], always=False)
    count("order violations by key", [len(result.disorder) for result in of_groups])
    visible = [result.results for result in of_groups if result.results is not None]
    if visible:
        count("visible results", [results.visible for results in visible], bad=False)
        count("without a visible result", [len(results.missing) for results in visible])
        count("with several visible results", [len(results.doubled) for results in visible])
        count("results out of order", [len(results.out_of_order) for results in visible])
    shown.add_row("longest stall of a kept partition", *(_seconds(r.stall) for r in of_groups))
    shown.add_row("longest hand-over, drain included", *(_seconds(r.hand_over) for r in of_groups))
    shown.add_row(
        "latency, median / 99 %",
        *(f"{r.latency_median:.2f} / {r.latency_p99:.2f} s" for r in of_groups),
    )
    return shown


def print_result(results: Mapping[Client, GroupResult], found: list[str], picture: Path) -> None:
    """Print the results, the path of the timeline, and the faults of the first group."""
    console = Console()
    console.print(table(results))
    print_line(console, f"timeline: {picture}")
    if found:
        console.print(f"asyncrevoke failed: {'; '.join(found)}", style="bold red", highlight=False)


def print_json(
    results: Mapping[Client, GroupResult],
    found: list[str],
    picture: Path,
    audited: AuditResult | None,
) -> None:
    """Print the results as one JSON object. Only the first group can fail the demo."""
    first = next(iter(results))
    printed: dict[str, object] = {
        "ok": not found,
        "faults": found,
        "picture": str(picture),
        **{
            client.value: facts(result, ok=client is not first or not found)
            for client, result in results.items()
        },
    }
    if audited is not None:
        from asyncrevoke.audit.results.report import counts

        printed["audit"] = {
            "status": audited.status,
            "read": audited.read,
            "done": audited.done,
            "found": counts(audited.anomalies),
            "results": [compared._asdict() for compared in audited.results],
        }
        printed["ok"] = not found and audited.status.exit_code == 0
    print(json.dumps(printed), flush=True)


def _seconds(stall: Stall | None) -> str:
    if stall is None:
        return "-"
    return f"{stall.seconds:.2f} s (partition {stall.partition.partition})"
