"""``asyncrevoke groups reset-offsets``, ``delete-offsets`` and ``delete``: change groups."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrevoke.cli.groups.tables import numbers_table
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import exit_on_errors, print_line, print_value, table_console
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted
from asyncrevoke.replays.ranges.times import to_time

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.changes.reset_plan import ResetPlan, Target
    from asyncrevoke.client.groups.facts import GroupFacts, ShareGroupFacts, SharePartitionFacts

# Those of a 63-bit number.
_MOST_DIGITS = 18

_Apply = Annotated[
    bool,
    typer.Option("--apply/--dry-run", help="Change the group. Default: only show what changes."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
_Timeout = Annotated[float, typer.Option(help="Seconds for each response.")]


@connects
def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The group.")],
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:PARTITION,...]]...",
            help="Default: all partitions that the group has offsets of.",
        ),
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset, a time, 2026-11-01T08:00+01:00, or how long ago, 1h."
        ),
    ],
    apply: _Apply = False,
    connection: ConnectionOptions,
    timeout: _Timeout = 10.0,
    as_json: _Json = False,
) -> None:
    """Set the offsets at which a consumer group, or a share group, starts to read.

    Records before the new offset are not delivered, whether or not they were processed. Records
    from it on are delivered again. Shows the offsets, and sets them with --apply. The group must
    not have members. A consumer group need not exist if topics are named. The exit code is 0 if the
    offsets are shown or set, 1 if not, 2 if an argument is wrong.

    Example: `asyncrevoke groups reset-offsets billing orders --to earliest --apply`
    """
    with exit_on_errors():
        target, chosen = _target(to), dict(map(_topic, topics or ()))
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        plan = asyncio.run(_reset(config, name, chosen, target, apply=apply))
    if as_json:
        print_value({"plan": plan, "applied": apply})
        return
    console = table_console(200)
    rows = ((f"{each.topic}-{each.partition}", each.before, each.after) for each in plan.moves)
    console.print(numbers_table(("partition", "offset", "new offset"), rows))
    if apply:
        print_line(console, f"set for group {name}")
    else:
        first = f"stop {counted(plan.members, 'member')}, and " if plan.members else ""
        new = "" if plan.type else f"there is no group {name} yet; "
        print_line(console, f"{new}nothing was changed: {first}add --apply")


@connects
def delete_offsets(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The share group.")],
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Of these topics.")],
    *,
    apply: _Apply = False,
    connection: ConnectionOptions,
    timeout: _Timeout = 10.0,
    as_json: _Json = False,
) -> None:
    """Delete the offsets that a share group has of topics.

    The group then begins in these topics like a new one, as its option `share.auto.offset.reset`
    says. Shows the offsets, and deletes them with --apply. The group must not have members. The
    exit code is 0 if the offsets are shown or deleted, 1 if not, 2 if an argument is wrong.

    Example: `asyncrevoke groups delete-offsets billing orders --apply`
    """
    with exit_on_errors():
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        found = asyncio.run(_delete(config, name, frozenset(topics), apply=apply))
    if as_json:
        print_value({"offsets": found, "deleted": apply})
        return
    console = table_console(200)
    rows = ((f"{each.topic}-{each.partition}", each.start, each.lag) for each in found)
    console.print(numbers_table(("partition", "start", "lag"), rows))
    print_line(
        console, f"deleted for group {name}" if apply else "nothing was deleted: add --apply"
    )


@connects
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The groups.")],
    *,
    apply: _Apply = False,
    connection: ConnectionOptions,
    timeout: _Timeout = 10.0,
    as_json: _Json = False,
) -> None:
    """Delete consumer groups and share groups, with their offsets.

    A member that joins later begins like one of a new group. Shows the groups, and deletes them
    with --apply. Nothing is deleted if one of them has members, or does not exist.
    The exit code is 0 if the groups are shown or deleted, 1 if not, 2 if an argument is wrong.

    Example: `asyncrevoke groups delete billing --apply`
    """
    with exit_on_errors():
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        found = asyncio.run(_delete_groups(config, list(dict.fromkeys(names)), apply=apply))
    if as_json:
        print_value({"groups": found, "deleted": apply})
        return
    console = table_console(200)
    for group in found:
        verb = "deleted" if apply else "would delete"
        has = f"{group.type} group with {counted(len(group.members), 'member')}"
        of = counted(len(group.partitions), "partition")
        print_line(console, f"{verb} {group.group}: {has} and offsets of {of}")
    if not apply:
        print_line(console, "nothing was deleted: add --apply")


async def _reset(
    config: ConsumerConfig,
    name: str,
    topics: dict[str, Collection[int] | None],
    target: Target,
    *,
    apply: bool,
) -> ResetPlan:
    from asyncrevoke.client.groups.changes.reset_plan import apply_reset, plan_reset
    from asyncrevoke.client.groups.cluster import GroupsClient

    async with GroupsClient(config) as brokers:
        plan = await plan_reset(brokers, name, topics, target)
        if apply:
            await apply_reset(brokers, plan)
        return plan


async def _delete_groups(
    config: ConsumerConfig, names: Sequence[str], *, apply: bool
) -> list[GroupFacts | ShareGroupFacts]:
    from asyncrevoke.client.groups.changes.deletion import check_empty, delete_group
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.observer import describe_group_of_any_type

    async with GroupsClient(config) as brokers:
        found = [await describe_group_of_any_type(brokers, name) for name in names]
        if apply:
            for group in found:
                check_empty(group)
            for name in names:
                await delete_group(brokers, name)
        return found


async def _delete(
    config: ConsumerConfig, name: str, topics: frozenset[str], *, apply: bool
) -> Sequence[SharePartitionFacts]:
    from asyncrevoke.client.groups.changes.share_offsets import delete_offsets, offsets_of_topics
    from asyncrevoke.client.groups.cluster import GroupsClient

    async with GroupsClient(config) as brokers:
        found = await offsets_of_topics(brokers, name, topics)
        if apply:
            await delete_offsets(brokers, name, topics)
        return found


def _target(text: str) -> Target:
    """Raises ConfigError."""
    if text in ("earliest", "latest", "now"):
        return "earliest" if text == "earliest" else "latest"
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        time = to_time("--to", text, datetime.now(UTC))
    except ConfigError as error:
        raise ConfigError(f"{error}, or earliest, latest, or an offset") from error
    if time.timestamp() < 0:
        raise ConfigError(f"--to {text} is before 1970, where records have no timestamps")
    return time


def _topic(text: str) -> tuple[str, Collection[int] | None]:
    """A topic with its partitions; None: all. Raises ConfigError."""
    topic, colon, listed = text.partition(":")
    if not re.fullmatch(r"[^:]+(:[0-9]{1,9}(,[0-9]{1,9})*)?", text):
        raise ConfigError(f"{text}: write TOPIC or TOPIC:PARTITION,..., orders:0,3 for example")
    return topic, frozenset(map(int, listed.split(","))) if colon else None
