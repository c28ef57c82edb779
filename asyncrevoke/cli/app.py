"""Lists the commands of ``asyncrevoke``, and imports the one that is called."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, cast

import typer
from typer.core import TyperGroup

import asyncrevoke

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class _Listed(NamedTuple):
    """A command in the list of commands: the first sentence of its help, and where it is."""

    help: str
    module: str


COMMANDS: Final = {
    "run": _Listed(
        "Handle records with the handlers of consumers until SIGINT or SIGTERM, then drain.",
        "run.command",
    ),
    "init": _Listed(
        "Write a small working project: handlers, their tests, pyproject.toml and README.md.",
        "init.command",
    ),
    "demo": _Listed(
        "Watch a group of consumers on a real Apache Kafka while its members join and leave.",
        "demo.command",
    ),
    "broker": _Listed(
        "Run a real Apache Kafka on this machine, without Docker, until Ctrl-C.",
        "broker.command",
    ),
    "groups": _Listed(
        "List groups with their members and lag, or show one: members, assignments, lag, and the "
        "members that delay a rebalance.",
        "groups.command",
    ),
    "dashboard": _Listed(
        "Show a consumer group on a live page until Ctrl-C: owners of partitions, and lag.",
        "web.dashboard",
    ),
    "asyncapi": _Listed(
        "Describe the handlers of a consumer: an AsyncAPI 3.0 document, or a page of it.",
        "web.asyncapi",
    ),
    "sink": _Listed(
        "Write a topic to a lake: each record once, also through rebalances and kills.",
        "sink.command",
    ),
    "replay": _Listed(
        "Run a consumer's handlers again on a part of a topic, on a Spark cluster.", "spark.replay"
    ),
    "handover": _Listed(
        "Let a consumer group continue where a streaming query of Spark has stopped.",
        "spark.handover",
    ),
    "audit": _Listed(
        "Check whether records were lost, repeated or reordered, by comparing journals with the "
        "topic.",
        "audit",
    ),
    "send": _Listed(
        "Write records: one of options, or one for each line of a file or of standard input.",
        "broker.send.command",
    ),
    "topics": _Listed("List, describe, read, create and delete topics.", "broker.topics.command"),
    "journal": _Listed(
        "Check, show and collect the journals of Consumer(..., journal=Journal(path)).", "journal"
    ),
    "dead-letters": _Listed(
        "List, show and replay dead letters: records that could not be handled.",
        "dead_letters.command",
    ),
}


class _Commands(MutableMapping[str, Any]):
    """The commands by name. Each is imported when it is looked up."""

    def __init__(self) -> None:
        self._imported: dict[str, object] = {}

    def __getitem__(self, name: str) -> object:
        if name not in self._imported:
            module = import_module(f"asyncrevoke.cli.{COMMANDS[name].module}")
            found: object = getattr(module, name.replace("-", "_"))
            self._imported[name] = _built(found, name)
        return self._imported[name]

    def __setitem__(self, name: str, command: object) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the command {name} stays")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _built(found: Any, name: str) -> Any:  # noqa: ANN401 - a function, or commands of its own
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(name)(found)
        return _with_plain_flags(typer.main.get_command(alone))
    found.rich_markup_mode = "markdown"
    group = typer.main.get_group(found)
    group.name = name
    return _with_plain_flags(group)


def _with_plain_flags(command: Any) -> Any:  # noqa: ANN401 - typer has no public type for these
    """The command, whose help shows ``<bool>`` after no flag: a flag takes no value."""
    for option in command.params:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    made = command.get_help_option

    def get_help_option(ctx: object) -> Any:  # noqa: ANN401 - as above
        option = made(ctx)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = get_help_option
    for subcommand in getattr(command, "commands", {}).values():
        _with_plain_flags(subcommand)
    return command


class _HelpFormatter(Protocol):
    """The formatter of typer, which has no public name."""

    buffer: list[str]

    def getvalue(self) -> str: ...

    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None: ...


class _ImportedWhenCalled(TyperGroup):
    """Imports a command when it is called, and none to list them."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - those of typer
        super().__init__(**attributes)
        self.commands = cast("Any", _Commands())

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - of the base
        """The names, in the order of the list."""
        return list(COMMANDS)

    def format_help(self, ctx: object, formatter: _HelpFormatter) -> None:
        """Print the help as plain text, as to import what draws frames takes longer than all else.

        Like the help with frames, it is not returned: typer prints an error without arguments so.
        """
        super(TyperGroup, self).format_help(cast("Any", ctx), cast("Any", formatter))
        typer.echo(formatter.getvalue().rstrip())
        formatter.buffer.clear()

    def format_commands(self, ctx: object, formatter: _HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.help) for name, listed in COMMANDS.items()])


app = typer.Typer(
    cls=_ImportedWhenCalled,
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
