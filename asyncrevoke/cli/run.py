"""``asyncrevoke run``: the handlers of an application until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrevoke.cli.log_output import LogFormat, LogLevel, LogOutput
from asyncrevoke.errors import AsyncRevokeError, ConfigError

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer

FAILED = 1
USAGE = 2


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE", help="Where the Consumer is, as in an import statement."
        ),
    ],
    *,
    log_level: Annotated[
        LogLevel, typer.Option(help="The least severe lines that are shown.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines for people, or a JSON object a line.")
    ] = LogFormat.CONSOLE,
) -> None:
    """Handle records with a consumer's handlers until SIGINT or SIGTERM, then drain.

    Handlers that have started end, their records are committed, and the group is left. A second
    signal ends at once. Modules are looked for in the current folder first. Logs go to stderr.
    The exit code is 0 after a drain, 1 if the application or a handler has failed, 2 if there is
    nothing to run.

    Example: `asyncrevoke run app:consumer --log-format json`
    """
    output = LogOutput(log_level, log_format)
    output.install()
    _run(_find(target), output)


def _find(target: str) -> Consumer:
    from asyncrevoke.target import (  # noqa: PLC0415 - loads all
        TargetError,
        find_consumer,
        from_the_module,
    )

    try:
        return find_consumer(target)
    except TargetError as error:
        raise _usage(error) from error
    except Exception as error:
        _log().exception("%s could not be imported", target, exc_info=from_the_module(error))
        raise typer.Exit(FAILED) from error


def _run(consumer: Consumer, output: LogOutput) -> None:
    try:
        asyncio.run(consumer.run())
    except Exception as error:
        if isinstance(error, ConfigError) and not output.has_shown(error):
            raise _usage(error) from error  # raised before anything ran
        # What a handler failed with has its traceback in the log already.
        brief = output.has_shown(error) or isinstance(error, AsyncRevokeError)
        _log().error(
            "ended by %s: %s", type(error).__name__, error, exc_info=None if brief else error
        )
        raise typer.Exit(FAILED) from error


def _usage(error: Exception) -> typer.Exit:
    print(f"error: {error}", file=sys.stderr)
    return typer.Exit(USAGE)


def _log() -> logging.Logger:
    # Looked up late: `logging.config` disables the loggers that exist when an app calls it.
    return logging.getLogger("asyncrevoke.run")
