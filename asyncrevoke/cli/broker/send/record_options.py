"""The options of ``asyncrevoke send`` that say what is sent."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from asyncrevoke.cli.broker.send.record_lines import RecordLine, record_lines, whole_record
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from io import BufferedReader


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """What is sent: one record, or one for each line."""

    key: Annotated[str | None, typer.Option(help="The key of all records. Default: none.")] = None
    value: Annotated[str | None, typer.Option(help="The value of one record.")] = None
    file: Annotated[
        Path | None,
        typer.Option(help="Send a record for each line of this file. Default: standard input."),
    ] = None
    whole_file: Annotated[
        bool, typer.Option("--whole-file", help="Send the whole file as one record.")
    ] = False
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Send one record with the key and no value.")
    ] = False
    key_separator: Annotated[
        str | None,
        typer.Option(help="The key of a line is what comes before this text; \\t is a tab."),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of all records; may be repeated."),
    ] = None
    partition: Annotated[
        int | None, typer.Option(min=0, help="The partition. Default: the key decides.")
    ] = None
    timestamp: Annotated[
        int | None,
        typer.Option(min=0, max=2**62, help="Milliseconds since the epoch. Default: now."),
    ] = None

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers. Raises ConfigError."""
        pairs: list[tuple[str, bytes]] = []
        for given in self.header or ():
            name, found, value = given.partition("=")
            if not found:
                raise ConfigError(f"--header {shown_option(given)} is not NAME=VALUE")
            pairs.append((name, os.fsencode(value)))
        return pairs

    @property
    def is_one_record(self) -> bool:
        """Whether the options are of one record."""
        return self.value is not None or self.tombstone or self.whole_file

    @property
    def source(self) -> str:
        """Where lines come from, for messages."""
        return "standard input" if self.file is None else str(self.file)

    @contextmanager
    def opened(self) -> Generator[Iterable[list[RecordLine]]]:
        """The records, as soon as there are some. Raises ConfigError, also while they are read, and
        OSError."""
        self._check()
        key = _encoded(self.key)
        if self.value is not None or self.tombstone:
            yield [[RecordLine(1, key, _encoded(self.value))]]
        elif self.file is None:
            yield self._of(cast("BufferedReader", sys.stdin.buffer))
        else:
            with self.file.open("rb") as file:
                yield self._of(file)

    def _of(self, source: BufferedReader) -> Iterable[list[RecordLine]]:
        key = _encoded(self.key)
        if self.whole_file:
            yield [RecordLine(1, key, whole_record(source))]
            return
        separator = None if self.key_separator is None else self.key_separator.replace("\\t", "\t")
        for lines in record_lines(source, _encoded(separator)):
            yield lines if key is None else [line._replace(key=key) for line in lines]

    def _check(self) -> None:
        options = {
            "--value": self.value,
            "--tombstone": self.tombstone or None,
            "--file": self.file,
        }
        given = [name for name, option in options.items() if option is not None]
        if len(given) > 1:
            raise ConfigError(f"use only one of {' and '.join(given)}")
        if self.tombstone and self.key is None:
            raise ConfigError("--tombstone needs --key")
        if self.whole_file and self.file is None:
            raise ConfigError("--whole-file needs --file")
        if self.key_separator is not None:
            others = {
                "--key": self.key,
                "--value": self.value,
                "--tombstone": self.tombstone or None,
                "--whole-file": self.whole_file or None,
            }
            given = [name for name, option in others.items() if option is not None]
            if given:
                raise ConfigError(
                    "--key-separator is for a record for each line, with its key in the line: use "
                    f"it without {' and '.join(given)}"
                )
        if self.key_separator == "":
            raise ConfigError("--key-separator must not be empty")


def _encoded(text: str | None) -> bytes | None:
    """An argument as the bytes that the shell has passed."""
    return None if text is None else os.fsencode(text)
