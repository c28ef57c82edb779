"""``asyncrevoke run``: runs the handlers of an application until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from asyncrevoke.cli.run.health_server import HealthResponse, health_server, metrics_of_process
from asyncrevoke.cli.run.log_output import LogFormat, LogLevel, LogOutput
from asyncrevoke.cli.run.serving import ServingError, load, serve
from asyncrevoke.cli.run.settings import WorkerSettings
from asyncrevoke.cli.terminal import USAGE, failed_with

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer


_Level: TypeAlias = Annotated[LogLevel, typer.Option(help="The least severe level to show.")]
_Format: TypeAlias = Annotated[
    LogFormat, typer.Option(help="Readable lines, or a JSON object per line.")
]


def run(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:ATTRIBUTE...",
            help="Where the Consumers are, as in an import statement.",
        ),
    ],
    *,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Member processes, each restarted when it fails. Default: this process is the "
            "member, and ends when it fails.",
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a .py file in this folder changes.")
    ] = False,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that workers may drain before they are killed.")
    ] = 30.0,
    health_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve /livez and /readyz on this port.")
    ] = None,
    health_host: Annotated[
        str, typer.Option(help="The address of the health port; 0.0.0.0 for Kubernetes.")
    ] = "127.0.0.1",
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Serve /metrics for Prometheus on --health-port, too.")
    ] = False,
    log_level: _Level = LogLevel.INFO,
    log_format: _Format = LogFormat.CONSOLE,
) -> None:
    """Handle records with the handlers of consumers until SIGINT or SIGTERM, then drain.

    A drain waits for running handlers, commits their records, and leaves the group. A second signal
    ends the process at once. Modules are imported from the current folder first. Logs go to stderr.
    If one of several consumers fails, the others drain. The exit code is 0 after a drain, 1 if the
    application or a handler has failed, 2 if a consumer cannot be loaded.

    Example: `asyncrevoke run app:consumer --workers 4 --log-format json`
    """
    if metrics and health_port is None:
        raise failed_with(
            "--metrics is served on the health port: add --health-port 8080, for example", USAGE
        )
    settings = WorkerSettings(
        tuple(targets), workers, reload, shutdown_timeout, log_level, log_format, health_host,
        health_port, metrics,
    )  # fmt: skip
    output = LogOutput(log_level, log_format)
    output.install()
    if workers is not None or reload:
        raise typer.Exit(_supervise(settings))
    try:
        serve(load(targets), output, lambda served: _health(served, settings))
    except ServingError as error:
        raise typer.Exit(error.code) from error


def _supervise(settings: WorkerSettings) -> int:
    from asyncrevoke.cli.run.workers.supervisor import Supervisor

    if settings.workers is not None and settings.reload:
        raise failed_with(
            "--reload is for one process during development: leave --workers out", USAGE
        )
    if os.name != "posix":
        raise failed_with(
            "--workers and --reload need a POSIX system: start the command once for each process",
            USAGE,
        )
    return asyncio.run(Supervisor(settings).run())


def _health(
    consumers: Sequence[Consumer], settings: WorkerSettings
) -> AbstractAsyncContextManager[object]:
    return health_server(
        settings, lambda: HealthResponse.of(consumers), lambda: metrics_of_process(consumers)
    )
