"""Collects the commands of ``asyncrevoke``."""

from __future__ import annotations

from typing import Annotated

import typer

import asyncrevoke
from asyncrevoke.cli.audit import audit
from asyncrevoke.cli.broker.command import broker
from asyncrevoke.cli.broker.topics import topics
from asyncrevoke.cli.dashboard import dashboard
from asyncrevoke.cli.dead_letters import dead_letters
from asyncrevoke.cli.demo.command import demo
from asyncrevoke.cli.groups.command import groups
from asyncrevoke.cli.handover import handover
from asyncrevoke.cli.init.command import init
from asyncrevoke.cli.journal import journal
from asyncrevoke.cli.replay import replay
from asyncrevoke.cli.run.command import run

app = typer.Typer(
    help="A Kafka consumer that keeps processing records while the group rebalances.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"asyncrevoke {asyncrevoke.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of the command itself."""


app.command()(run)
app.command()(init)
app.command()(demo)
app.command()(broker)
app.add_typer(topics, name="topics")
app.command()(groups)
app.add_typer(journal, name="journal")
app.command()(dashboard)
app.add_typer(dead_letters, name="dead-letters")
app.command()(replay)
app.command()(handover)
app.command()(audit)
