"""Terminal output of commands. Text from brokers and records cannot control the terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from asyncrevoke.cli.options.option_groups import as_flags
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError
from asyncrevoke.client.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.table import Table

# Exit codes: the command failed, an option is wrong, or the result is inconclusive.
FAILED: Final = 1
USAGE: Final = 2
INCONCLUSIVE: Final = 3


def table_console(width: int) -> Console:
    """A console for tables, as wide as the terminal. In files and pipes, it has this width."""
    console = Console()
    return console if console.is_terminal else Console(width=width)


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text; markup is not interpreted."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def print_line(console: Console, text: str) -> None:
    """Print a line of plain text, without markup and highlighting. Only a terminal wraps it."""
    console.print(Text(printable(text)), soft_wrap=not console.is_terminal)


def print_value(value: object) -> None:
    """Print a value as one line of JSON."""
    print(printable_json(msgspec.json.encode(value).decode()))


def print_error(error: object, console: Console | None = None) -> None:
    """Print an error without wrapping, on stderr unless ``console`` is given."""
    shown = console or Console(stderr=True)
    shown.print(Text(f"error: {printable_lines(str(error))}"), soft_wrap=True)


def failed_with(error: object, code: int, console: Console | None = None) -> typer.Exit:
    """Print an error. Returns the exception to raise."""
    print_error(error, console)
    return typer.Exit(code)


@contextmanager
def exit_on_errors(*usage: type[Exception]) -> Generator[None]:
    """End the command after an error of this library, or one of ``usage``. After the latter and a
    ConfigError, the exit code says that an option is wrong."""
    wrong_options: tuple[type[Exception], ...] = (ConfigError, *usage)
    try:
        yield
    except wrong_options as error:
        raise failed_with(as_flags(error), USAGE) from error
    except AsyncRevokeError as error:
        raise failed_with(as_flags(error), FAILED) from error
