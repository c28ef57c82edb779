"""``asyncrevoke dashboard``: a live page of a group, from the reports of its brokers."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import print_error
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from asyncrevoke.web.dashboard.group_watch import GroupWatch


@connects
def dashboard(
    *,
    group: Annotated[str, typer.Option(help="The consumer group to show.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 shows the page to others.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 chooses a free one.")] = 8983,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A further host name that requests may name; may be repeated. "
            "localhost, --host and all IP addresses are allowed."
        ),
    ] = None,
    dead_letter_topic: Annotated[
        list[str] | None,
        typer.Option(help="A dead letter topic that the page can list; may be repeated."),
    ] = None,
    dead_letter_values: Annotated[
        bool,
        typer.Option("--dead-letter-values", help="Show key, headers, value and error of them."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    connection: ConnectionOptions,
) -> None:
    """Show a consumer group on a live page until Ctrl-C: owners of partitions, and lag.

    Works for groups of any client: it requests their state from the brokers twice a second. It can
    also list dead letter topics. In an application, dashboard_router(consumer) shows more.

    Example: `asyncrevoke dashboard --group billing --bootstrap-servers kafka-1:9092 --open`
    """
    from asyncrevoke.web.dashboard.group_watch import GroupWatch
    from asyncrevoke.web.dashboard.history import History
    from asyncrevoke.web.dashboard.server import served
    from asyncrevoke.web.dashboard.stored_letters import StoredLetters

    messages = Console(stderr=True)
    try:
        config = connection.config(request_timeout=10.0, client_id="asyncrevoke-dashboard")
        topics = check_topics(tuple(dead_letter_topic or ()), "--dead-letter-topic")
        readable = dict.fromkeys(topics, config)
        stored = StoredLetters(lambda: readable, values=dead_letter_values)
        history = History(group)
        page = served(history, host, port, allowed_host or (), stored=stored)
        asyncio.run(_show(page, GroupWatch(config, group, history), open_page, messages))
    except (ConfigError, OSError) as error:
        print_error(error, messages)
        raise typer.Exit(2) from error


async def _show(
    page: AbstractAsyncContextManager[str], watch: GroupWatch, open_page: bool, messages: Console
) -> None:
    async with page as address:
        print(address, flush=True)
        messages.print("Ctrl-C ends it", highlight=False)
        if open_page:
            await asyncio.to_thread(webbrowser.open, address)
        watching = asyncio.create_task(watch.run())
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, watching.cancel)
        await asyncio.wait((watching,))
        if not watching.cancelled():
            watching.result()
