"""The live view: owners, draining partitions and records in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Group as Stack
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from asyncrevoke.cli.demo.workload import ScheduleStep, now
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from asyncrevoke.cli.demo.group import DemoGroup, MemberProgress, PartitionProgress

COLOURS = {"A": "cyan", "B": "yellow", "C": "green", "D": "magenta"}
STILL = 0.5
"""Seconds without a handler call, with records waiting, after which a partition is marked."""


class View:
    """A context manager that shows the run: live on a terminal, otherwise as one line for each
    step."""

    def __init__(
        self,
        groups: Sequence[DemoGroup],
        steps: Sequence[ScheduleStep],
        seconds: float,
        console: Console,
        *,
        live: bool,
    ) -> None:
        self._groups, self._steps, self._seconds = groups, steps, seconds
        self._console = console
        self._printed = 0
        self._live: Live | None = None
        if live and console.is_terminal:
            self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, elapsed: float) -> None:
        """Called several times a second."""
        if self._live is not None:
            shown = render(self._groups, self._steps, elapsed, self._seconds)
            self._live.update(shown, refresh=True)
            return
        done = self._groups[0].steps
        for step in done[self._printed :]:
            self._console.print(f"{step.at:5.1f} s  {step.member} {step.action}", highlight=False)
        self._printed = len(done)


def render(
    groups: Sequence[DemoGroup], steps: Sequence[ScheduleStep], elapsed: float, seconds: float
) -> RenderableType:
    """The view at one moment of the run."""
    return Stack(_headline(steps, elapsed, seconds), *map(_group, groups))


def colour(member: str) -> str:
    """The colour of a member."""
    return COLOURS.get(member, "white")


def _headline(steps: Sequence[ScheduleStep], elapsed: float, seconds: float) -> Text:
    text = Text(f"{elapsed:5.1f} s  ", style="bold")
    step = next((step for step in steps if step.at > elapsed), None)
    if elapsed > seconds:
        text.append("all orders produced; members handle the rest and leave", style="dim")
    elif step is not None:
        text.append("next: ", style="dim")
        text.append(step.member, style=colour(step.member))
        text.append(f" {step.action} in {step.at - elapsed:.0f} s", style="dim")
    return text


def _group(group: DemoGroup) -> Panel:
    progress = group.progress
    members = Table.grid(padding=(0, 2))
    for member in progress.members.values():
        members.add_row(*_member(member))
    waiting = sum(partition.waiting for partition in progress.partitions.values())
    running = sum(partition.in_flight for partition in progress.partitions.values())
    title = (
        f"{group.client}: {progress.handled:,} of {len(group.produced):,} orders handled, "
        f"{running} in flight, {waiting} waiting"
    )
    return Panel(Stack(members, Text(), _partitions(group)), title=title, title_align="left")


def _member(member: MemberProgress) -> tuple[Text, ...]:
    style = "dim" if member.gone else colour(member.name)
    drains = f"{member.draining} being revoked" if member.draining else ""
    return (
        Text(member.name, style=f"bold {style}"),
        Text(member.state, style="dim" if member.gone else ""),
        Text(counted(len(member.partitions), "partition")),
        Text(f"{member.in_flight:3} in flight"),
        Text(f"{member.handled:6,} handled"),
        Text(drains, style="bold red"),
    )


def _partitions(group: DemoGroup) -> Table:
    partitions = group.progress.partitions.values()
    at = now()
    rows = {
        "partition": [Text(f"{number:>3}") for number in group.progress.partitions],
        "owner": [_owner(partition) for partition in partitions],
        "in flight": [Text(f"{partition.in_flight or '·':>3}") for partition in partitions],
        "waiting": [Text(f"{partition.waiting or '·':>3}") for partition in partitions],
        "still for": [_still(partition, at) for partition in partitions],
    }
    table = Table.grid(padding=(0, 1))
    for name, cells in rows.items():
        table.add_row(Text(name, style="dim"), *cells)
    return table


def _owner(partition: PartitionProgress) -> Text:
    owner = partition.owner
    return Text(f" {owner} ", style=f"black on {colour(owner)}") if owner else Text(" - ", "dim")


def _still(partition: PartitionProgress, at: float) -> Text:
    seconds = at - partition.last_call if partition.waiting and partition.last_call else 0.0
    return Text(f"{seconds:.1f}" if seconds >= STILL else "  ·", style="red")
