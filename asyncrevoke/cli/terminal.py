"""Terminal output of commands; text from brokers and records cannot control the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from asyncrevoke.printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.table import Table


def add_row(table: Table, *cells: str) -> None:
    """A row of plain text: what looks like markup is shown as it is."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def print_line(console: Console, text: str) -> None:
    """One line of plain text, neither marked up nor highlighted."""
    console.print(Text(printable(text)))


def print_error(error: object, console: Console | None = None) -> None:
    """The sentence of an error, on stderr unless ``console`` is given; not wrapped."""
    shown = console or Console(stderr=True)
    shown.print(Text(f"error: {printable_lines(str(error))}"), soft_wrap=True)
