"""``asyncrevoke groups lag``: shows the lag of groups by topic, once or again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

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
from asyncrevoke.client.printable import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from asyncrevoke.cli.groups.lag_history import LagHistory, TopicLag
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.cluster import GroupsClient


class _Look(NamedTuple):
    """What one look has found, and why there is nothing of the named groups that do not exist."""

    time: datetime
    lags: Sequence[TopicLag]
    missing: Mapping[str, NoGroupError]


@connects
def lag(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Groups. Default: all groups.")
    ] = None,
    *,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.5,
            help="Look again after so many seconds, at least 0.5, until Ctrl-C.",
        ),
    ] = None,
    connection: ConnectionOptions,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value for each look.")
    ] = False,
) -> None:
    """Show the lag of groups in each topic.

    With --watch, each look has its time, and shows how many records a second arrive, and how many
    are committed; a share group commits none. A group that does not exist is named, and a look that
    fails is reported; the next look follows. The exit code is 0 if the lag was shown, 1 if a group
    does not exist (without --watch) or no broker responds, 2 if an option is wrong.

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
        await _follow(config, names, watch, lambda look: console.print(_shown(look, watch)))
    else:
        with Live(console=table_console(1000), auto_refresh=False) as live:
            await _follow(
                config, names, watch, lambda look: live.update(_shown(look, watch), refresh=True)
            )


async def _follow(
    config: ConsumerConfig,
    names: Sequence[str],
    watch: float | None,
    show: Callable[[_Look], object],
) -> None:
    async for look in _looks(config, names, watch):
        show(look)


async def _looks(
    config: ConsumerConfig, names: Sequence[str], watch: float | None
) -> AsyncGenerator[_Look, None]:
    from asyncrevoke.cli.groups.lag_history import LagHistory
    from asyncrevoke.client.groups.cluster import GroupsClient

    history = LagHistory()
    async with GroupsClient(config) as brokers:
        look = await _look(brokers, names, history)
        if look.missing and watch is None:
            raise next(iter(look.missing.values()))
        yield look
        while watch is not None:
            await asyncio.sleep(watch)
            try:
                look = await _look(brokers, names, history)
            except GroupsError as error:
                print_error(error)
            else:
                yield look


async def _look(brokers: GroupsClient, names: Sequence[str], history: LagHistory) -> _Look:
    from asyncrevoke.client.groups.observer import describe_group_of_any_type, list_groups

    lags: list[TopicLag] = []
    missing: dict[str, NoGroupError] = {}
    for name in names or [group.group for group in await list_groups(brokers)]:
        try:
            group = await describe_group_of_any_type(brokers, name)
        except NoGroupError as error:
            history.forget(name)
            # Without names, the group was deleted after it was listed.
            if names:
                missing[name] = error
            continue
        lags += history.look(group, time.monotonic())
    return _Look(datetime.now(UTC), lags, missing)


def _print_json(look: _Look) -> None:
    print_value({"time": look.time, "lags": look.lags, "missing": list(look.missing)})
    sys.stdout.flush()


def _shown(look: _Look, watch: float | None) -> RenderableType:
    parts: list[RenderableType] = []
    if watch is not None:
        parts.append(look.time.isoformat(timespec="seconds"))
    if look.lags:
        parts.append(_table(look.lags, watch))
    elif not look.missing:
        parts.append("no group has a lag")
    parts += (Text(printable(f"there is no group {name!r} (yet)")) for name in look.missing)
    return Group(*parts)


def _table(lags: Iterable[TopicLag], watch: float | None) -> Table:
    rates = () if watch is None else ("arriving/s", "committing/s")
    rows = table("group", "topic", "partitions", "lag", "worst", *rates)
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
