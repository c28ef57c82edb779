"""``asyncrevoke groups configure``: shows and sets the options of a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from asyncrevoke.cli.groups.tables import table
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import (
    add_row,
    exit_on_errors,
    print_line,
    print_value,
    table_console,
)
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.configs import GroupOption


@connects
def configure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The group. It need not exist yet.")],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTION=VALUE]...", help="Default: show all options."),
    ] = None,
    *,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION", help="Return to the broker's value of this option; may be repeated."
        ),
    ] = None,
    connection: ConnectionOptions,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Show them as one JSON value.")] = False,
) -> None:
    """Show the options that a group has at the brokers, or set some of them.

    Share groups have no others: their members cannot choose where to begin, or the isolation level.
    Options may be set before the group exists, and stay when it is deleted. Either all are set, or
    none. The broker refuses options and values that it does not know; its text is shown. The exit
    code is 0 if the options are shown or set, 1 if not, 2 if an argument is wrong.

    Example: `asyncrevoke groups configure billing share.auto.offset.reset=earliest`
    """
    with exit_on_errors():
        values = _values(options or (), unset or ())
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        if not values:
            _show(asyncio.run(_read(config, name)), as_json=as_json)
            return
        off = asyncio.run(_set(config, name, values))
        console = table_console(1000)
        for option, value in values.items():
            print_line(console, f"unset {option}" if value is None else f"set {option}={value}")
        if off:
            print_line(Console(stderr=True), off)


def _values(options: Sequence[str], unset: Sequence[str]) -> dict[str, str | None]:
    """The value of each option; None: the broker's. Raises ConfigError."""
    values: dict[str, str | None] = {}
    for text in options:
        option, equals, value = text.partition("=")
        if not (option and equals):
            raise ConfigError(f"{text}: write OPTION=VALUE, share.isolation.level=read_committed")
        if option in values:
            raise ConfigError(f"{option} has two values")
        values[option] = value
    for option in unset:
        if values.get(option) is not None:
            raise ConfigError(f"{option} cannot be set and unset")
        values[option] = None
    return values


async def _read(config: ConsumerConfig, name: str) -> Sequence[GroupOption]:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.configs import group_options

    async with GroupsClient(config) as brokers:
        return await group_options(brokers, name)


async def _set(config: ConsumerConfig, name: str, values: Mapping[str, str | None]) -> str:
    """Set options. Returns a warning, or nothing."""
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.configs import set_group_options
    from asyncrevoke.client.groups.share_groups import why_off

    async with GroupsClient(config) as brokers:
        await set_group_options(brokers, name, values)
        of_share_groups = any(option.startswith("share.") for option in values)
        return await why_off(brokers, name) if of_share_groups else ""


def _show(found: Sequence[GroupOption], *, as_json: bool) -> None:
    if as_json:
        print_value(found)
        return
    rows = table("option", "value", "set by")
    for option in found:
        add_row(rows, option.name, option.value or "", option.source)
    table_console(1000).print(rows)
