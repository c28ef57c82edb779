"""The tables of ``asyncrevoke groups``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from asyncrevoke.cli.terminal import add_row, print_line
from asyncrevoke.client.groups.facts import (
    GroupFacts,
    GroupSummary,
    MemberFacts,
    PartitionFacts,
    ShareGroupFacts,
)
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from rich.console import Console

    from asyncrevoke.client.model import TopicPartition

_UNKNOWN = "?"


def show_groups(console: Console, groups: Sequence[GroupSummary]) -> None:
    """Print all groups, one per line."""
    rows = table("group", "type", "state", "members", "lag")
    for column in rows.columns[3:]:
        column.justify = "right"
    for group in groups:
        add_row(
            rows,
            group.group,
            group.type or _UNKNOWN,
            group.state or _UNKNOWN,
            *map(_number, (group.members, group.lag)),
        )
    console.print(rows)


def show_group(console: Console, group: GroupFacts) -> None:
    """Print one group: its state, its members, and each partition with its lag."""
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    print_line(
        console,
        f"{group.group}: {group.type}, {group.state}{epoch}, "
        f"{group.assignor or 'no assignor'}, coordinated by {group.coordinator}",
    )
    print_line(console, group.rebalance.says)
    if group.members:
        console.print(_members(group.members))
    if group.partitions:
        console.print(_partitions(group.partitions, group.members))
        print_line(console, _lag(group))
    for member in group.unread or ():
        print_line(
            console,
            f"{member.says} ({_ranges(member.partitions)}: nothing for {member.seconds:.0f} s)",
        )
    if group.unread == ():
        print_line(console, "No member was seen to commit nothing while records arrive.")


def show_share_group(console: Console, group: ShareGroupFacts) -> None:
    """Print one share group: its state, its members, and each partition with its lag."""
    print_line(
        console,
        f"{group.group}: {group.type}, {group.state}, epoch {group.epoch}, "
        f"{group.assignor}, coordinated by {group.coordinator}",
    )
    if group.members:
        rows = table("member", "client", "host", "epoch", "has")
        for member in group.members:
            add_row(
                rows,
                member.member_id,
                member.client_id,
                member.host,
                str(member.epoch),
                _ranges(member.assigned),
            )
        console.print(rows)
    if group.partitions:
        names = _names(group.members)
        rows = table("partition", "members", "start", "lag")
        for column in rows.columns[2:]:
            column.justify = "right"
        for partition in group.partitions:
            add_row(
                rows,
                f"{partition.topic}-{partition.partition}",
                " ".join(names[member] for member in partition.member_ids) or "nobody",
                *map(_number, (partition.start, partition.lag)),
            )
        console.print(rows)
        print_line(console, _lag(group))
    for partition in group.partitions:
        if partition.skipped:
            print_line(
                console,
                f"{partition.topic_partition} starts at {partition.start}, beyond the end of its "
                f"log: the next {counted(partition.skipped, 'record')} will not be delivered.",
            )
    if any(partition.lag is None for partition in group.partitions):
        print_line(console, "The lag of a partition is known after the first fetch of a member.")


def _lag(group: GroupFacts | ShareGroupFacts) -> str:
    unknown = sum(partition.lag is None for partition in group.partitions)
    more = f", and {counted(unknown, 'partition')} of unknown lag" if unknown else ""
    return f"lag: {_number(group.lag)}{more}"


def _members(members: Sequence[MemberFacts]) -> Table:
    by_epoch = any(member.epoch is not None for member in members)
    rows = table(
        "member", "client", "host", *(["epoch"] if by_epoch else []), "has", "to release",
        *(["waits for"] if by_epoch else []),
    )  # fmt: skip
    for member in members:
        add_row(
            rows,
            member.group_instance_id or member.member_id,
            member.client_id,
            member.host,
            *([str(member.epoch)] if by_epoch else []),
            member.unreadable or _ranges(member.assigned),
            _ranges(member.releasing),
            *([_ranges(member.waiting_for)] if by_epoch else []),
        )
    return rows


def _partitions(partitions: Iterable[PartitionFacts], members: Sequence[MemberFacts]) -> Table:
    names = _names(members)
    rows = table("partition", "member", "committed", "end", "lag")
    for column in rows.columns[2:]:
        column.justify = "right"
    for partition in partitions:
        add_row(
            rows,
            f"{partition.topic}-{partition.partition}",
            "nobody" if partition.member_id is None else names[partition.member_id],
            *map(_number, (partition.committed, partition.end, partition.lag)),
        )
    return rows


def _names(members: Sequence[MemberFacts]) -> Mapping[str, str]:
    """What members are called, by their ids."""
    clients = Counter(member.client_id for member in members)
    return {
        member.member_id: member.group_instance_id
        or (member.client_id if clients[member.client_id] == 1 else member.member_id)
        for member in members
    }


def _ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as ``orders-0..3 orders-7``."""
    runs: list[tuple[str, int, int]] = []
    for topic, number in sorted(partitions):
        if runs and (runs[-1][0], runs[-1][2] + 1) == (topic, number):
            runs[-1] = (topic, runs[-1][1], number)
        else:
            runs.append((topic, number, number))
    return " ".join(
        f"{topic}-{first}" if first == last else f"{topic}-{first}..{last}"
        for topic, first, last in runs
    )


def _number(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


def numbers_table(
    columns: Sequence[str], rows: Iterable[tuple[str, int | None, int | None]]
) -> Table:
    """A table of a name and two numbers that may be unknown."""
    filled = table(*columns)
    for column in filled.columns[1:]:
        column.justify = "right"
    for name, *numbers in rows:
        add_row(filled, name, *map(_number, numbers))
    return filled


def table(*columns: str) -> Table:
    """An empty table without frames."""
    rows = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        rows.add_column(column, overflow="fold")
    return rows
