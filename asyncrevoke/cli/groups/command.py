"""``asyncrevoke groups``: options and output of the commands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from asyncrevoke.cli.groups.configure import configure
from asyncrevoke.cli.groups.lag import lag
from asyncrevoke.cli.groups.offsets import delete, delete_offsets, reset_offsets
from asyncrevoke.cli.groups.tables import show_group, show_groups, show_share_group
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import exit_on_errors, print_value, table_console
from asyncrevoke.client.groups.facts import GroupFacts, GroupSummary, ShareGroupFacts

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig

_HELP = ("-h", "--help")


class _ShowsByDefault(TyperGroup):
    """Runs the command ``show`` if the first word is neither a command nor a request for help."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Put ``show`` before other arguments."""
        if not args or (args[0] not in self.commands and args[0] not in _HELP):
            args = ["show", *args]
        return super().parse_args(cast("Any", ctx), args)


groups = typer.Typer(
    cls=_ShowsByDefault,
    rich_markup_mode="markdown",
)


@groups.callback()
def options() -> None:
    """List groups with their members and lag, or show one: members, assignments, lag, and the
    members that delay a rebalance. Watch lag. Change the offsets and options of groups, and delete
    them.

    `asyncrevoke groups [NAME]` is short for `asyncrevoke groups show [NAME]`, except for groups
    that are named as a command is.

    Example: `asyncrevoke groups billing --bootstrap-servers kafka-1:9092`
    """


@groups.command()
@connects
def show(
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
    """List groups with their members and lag, or show one: members, assignments, lag, and the
    members that delay a rebalance.

    Shows consumer groups of all clients and of both protocols, classic and KIP-848, and share
    groups (KIP-932), several of whose members may have the same partition. A "?" stands for what
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
    if active and not isinstance(result, GroupFacts | ShareGroupFacts):
        result = [group for group in result if group.members != 0]
    if as_json:
        print_value(result)
    else:
        _show(result)


async def _ask(
    config: ConsumerConfig, name: str | None
) -> GroupFacts | ShareGroupFacts | Sequence[GroupSummary]:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.observer import describe_group_of_any_type, summarize_groups

    async with GroupsClient(config) as cluster:
        if name is None:
            return await summarize_groups(cluster)
        return await describe_group_of_any_type(cluster, name)


async def _observe(config: ConsumerConfig, name: str, seconds: float) -> GroupFacts:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.unread import observe_group

    async with GroupsClient(config) as cluster:
        return await observe_group(cluster, name, seconds)


def _show(result: GroupFacts | ShareGroupFacts | Sequence[GroupSummary]) -> None:
    console = table_console(1000)
    if isinstance(result, GroupFacts):
        show_group(console, result)
    elif isinstance(result, ShareGroupFacts):
        show_share_group(console, result)
    elif result:
        show_groups(console, result)
    else:
        print("there are no groups")


groups.command()(configure)
groups.command()(lag)
groups.command()(reset_offsets)
groups.command()(delete_offsets)
groups.command()(delete)
