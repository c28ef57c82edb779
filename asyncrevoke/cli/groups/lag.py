"""``asyncrevoke groups lag``: shows the lag of groups by topic, once or again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from asyncrevoke.cli.groups.tables import table
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import (
    add_row,
    exit_on_errors,
    print_error,
    print_value,
    table_console,
)
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from rich.table import Table

    from asyncrevoke.cli.groups.lag_history import LagHistory, TopicLag
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.cluster import GroupsClient


@connects
def lag(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Groups. Default: all groups.")
    ] = None,
    *,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.5, help="Look again after so many seconds, until Ctrl-C."
        ),
    ] = None,
    connection: ConnectionOptions,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value for each look.")
    ] = False,
) -> None:
    """Show the lag of groups in each topic.

    With --watch, also how many records a second arrive, and how many are committed; a share group
    commits none. A look that fails is reported, and the next one follows. The exit code is 0 if the
    lag was shown, 1 if a group does not exist or no broker responds, 2 if an option is wrong.

    Example: `asyncrevoke groups lag billing --watch 5`
    """
    with exit_on_errors():
        config = connection.config(request_timeout=timeout, client_id="asyncrevoke-groups")
        # Ctrl-C is how watching ends.
        with suppress(KeyboardInterrupt):
            asyncio.run(_run(config, names or (), watch, as_json=as_json))


async def _run(
    config: ConsumerConfig, names: Sequence[str], watch: float | None, *, as_json: bool
) -> None:
    if as_json:
        await _follow(config, names, watch, _print_json)
    elif watch is None or not sys.stdout.isatty():
        console = table_console(1000)
        await _follow(
            config,
            names,
            watch,
            lambda lags: console.print(_table(lags, watch) if lags else "no group has a lag"),
        )
    else:
        with Live(console=table_console(1000), auto_refresh=False) as live:
            await _follow(
                config,
                names,
                watch,
                lambda lags: live.update(_table(lags, watch), refresh=True),
            )


async def _follow(
    config: ConsumerConfig,
    names: Sequence[str],
    watch: float | None,
    show: Callable[[list[TopicLag]], object],
) -> None:
    async for lags in _looks(config, names, watch):
        show(lags)


async def _looks(
    config: ConsumerConfig, names: Sequence[str], watch: float | None
) -> AsyncGenerator[list[TopicLag], None]:
    from asyncrevoke.cli.groups.lag_history import LagHistory
    from asyncrevoke.client.groups.cluster import GroupsClient

    history = LagHistory()
    async with GroupsClient(config) as brokers:
        yield await _look(brokers, names, history)
        while watch is not None:
            await asyncio.sleep(watch)
            try:
                lags = await _look(brokers, names, history)
            except NoGroupError:
                raise
            except GroupsError as error:
                print_error(error)
            else:
                yield lags


async def _look(brokers: GroupsClient, names: Sequence[str], history: LagHistory) -> list[TopicLag]:
    from asyncrevoke.client.groups.observer import describe_group_of_any_type, list_groups

    found: list[TopicLag] = []
    for name in names or [group.group for group in await list_groups(brokers)]:
        try:
            group = await describe_group_of_any_type(brokers, name)
        except NoGroupError:
            if names:
                raise
            continue  # it was deleted meanwhile
        found += history.look(group, time.monotonic())
    return found


def _print_json(lags: Sequence[TopicLag]) -> None:
    print_value({"time": datetime.now(UTC), "lags": lags})
    sys.stdout.flush()


def _table(lags: Iterable[TopicLag], watch: float | None) -> Table:
    rates = () if watch is None else ("arriving/s", "committed/s")
    rows = table("group", "topic", "partitions", "lag", "most in", *rates)
    for column in rows.columns[2:]:
        column.justify = "right"
    for each in lags:
        unknown = f" + {each.unknown} unknown" if each.unknown and each.lag is not None else ""
        add_row(
            rows,
            each.group,
            each.topic,
            str(each.partitions),
            f"{'?' if each.lag is None else each.lag}{unknown}",
            "" if each.worst is None else str(each.worst),
            *(
                ("" if rate is None else f"{rate:g}" for rate in (each.arriving, each.committing))
                if rates
                else ()
            ),
        )
    return rows
