"""``asyncrevoke groups``: options and output of the command."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import add_row, exit_on_errors, print_line, print_value, table_console
from asyncrevoke.client.groups.facts import GroupFacts, GroupSummary, MemberFacts, PartitionFacts
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from rich.console import Console

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import TopicPartition


@connects
def groups(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One group. Default: list all groups.")
    ] = None,
    *,
    connection: ConnectionOptions,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 10.0,
    active: Annotated[
        bool, typer.Option("--active", help="Leave groups without members out of the list.")
    ] = False,
    observe: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=10,
            help="Look again for so many seconds, at least 10, and show members that commit "
            "nothing for half of them while records arrive in their partitions. With a NAME.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value.")] = False,
) -> None:
    """List consumer groups with their members and lag, or show one: members, assignments, lag, and
    the members that delay a rebalance.

    Shows groups of all clients and of both protocols, classic and KIP-848. A "?" stands for what
    brokers do not report: while a classic group prepares a rebalance, they do not report which
    members have not rejoined. The exit code is 0 if the groups are shown, 1 if the group does not
    exist or no broker responds, 2 if an option is wrong.

    Example: `asyncrevoke groups billing --bootstrap-servers kafka-1:9092`
    """
    if observe is not None and name is None:
        raise typer.BadParameter("name one group", param_hint="--observe")
    with exit_on_errors():
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        if observe is None or name is None:
            result = asyncio.run(_ask(config, name))
        else:
            result = asyncio.run(_observe(config, name, observe))
    if active and not isinstance(result, GroupFacts):
        result = [group for group in result if group.members != 0]
    if as_json:
        print_value(result)
    else:
        _show(result)


async def _ask(config: ConsumerConfig, name: str | None) -> GroupFacts | Sequence[GroupSummary]:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.observer import describe_group, summarize_groups

    async with GroupsClient(config) as cluster:
        if name is None:
            return await summarize_groups(cluster)
        return await describe_group(cluster, name)


async def _observe(config: ConsumerConfig, name: str, seconds: float) -> GroupFacts:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.unread import observe_group

    async with GroupsClient(config) as cluster:
        return await observe_group(cluster, name, seconds)


def _show(result: GroupFacts | Sequence[GroupSummary]) -> None:
    console = table_console(1000)
    if isinstance(result, GroupFacts):
        show_group(console, result)
    elif result:
        show_groups(console, result)
    else:
        print("there are no consumer groups")


_UNKNOWN = "?"


def show_groups(console: Console, groups: Sequence[GroupSummary]) -> None:
    """Print all groups, one per line."""
    table = _table("group", "type", "state", "members", "lag")
    for column in table.columns[3:]:
        column.justify = "right"
    for group in groups:
        add_row(
            table,
            group.group,
            group.type or _UNKNOWN,
            group.state or _UNKNOWN,
            *map(_number, (group.members, group.lag)),
        )
    console.print(table)


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
        unknown = sum(partition.lag is None for partition in group.partitions)
        print_line(
            console,
            f"lag: {_number(group.lag)}"
            + (f", and {counted(unknown, 'partition')} of unknown lag" * bool(unknown)),
        )
    for member in group.unread or ():
        print_line(
            console,
            f"{member.says} ({_ranges(member.partitions)}: nothing for {member.seconds:.0f} s)",
        )
    if group.unread == ():
        print_line(console, "No member was seen to commit nothing while records arrive.")


def _members(members: Sequence[MemberFacts]) -> Table:
    by_epoch = any(member.epoch is not None for member in members)
    table = _table(
        "member", "client", "host", *(["epoch"] if by_epoch else []), "has", "to release",
        *(["waits for"] if by_epoch else []),
    )  # fmt: skip
    for member in members:
        add_row(
            table,
            member.group_instance_id or member.member_id,
            member.client_id,
            member.host,
            *([str(member.epoch)] if by_epoch else []),
            member.unreadable or _ranges(member.assigned),
            _ranges(member.releasing),
            *([_ranges(member.waiting_for)] if by_epoch else []),
        )
    return table


def _partitions(partitions: Iterable[PartitionFacts], members: Sequence[MemberFacts]) -> Table:
    clients = Counter(member.client_id for member in members)
    names = {
        member.member_id: member.group_instance_id
        or (member.client_id if clients[member.client_id] == 1 else member.member_id)
        for member in members
    }
    table = _table("partition", "member", "committed", "end", "lag")
    for column in table.columns[2:]:
        column.justify = "right"
    for partition in partitions:
        add_row(
            table,
            f"{partition.topic}-{partition.partition}",
            "nobody" if partition.member_id is None else names[partition.member_id],
            *map(_number, (partition.committed, partition.end, partition.lag)),
        )
    return table


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


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
