"""Runs the consumer of an application in this process, logs the error that ends it, and ends the
process in time."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING

from asyncrevoke.cli.run.health_server import HealthPortError
from asyncrevoke.cli.run.log_output import LogOutput
from asyncrevoke.cli.terminal import FAILED, USAGE, print_error
from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import until_process_ends
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError, IllegalStateError
from asyncrevoke.client.printable import error_text, named_error
from asyncrevoke.client.runtime.hooks.event_log import EventLog

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer


class ServingError(Exception):
    """The consumer has ended, and its error was logged. ``code`` is the exit code."""

    def __init__(self, code: int, cause: BaseException) -> None:
        self.code = code
        self.cause = cause
        super().__init__(error_text(cause))


def load(targets: Sequence[str]) -> list[Consumer]:
    """Import the Consumer of each ``MODULE:ATTRIBUTE``. Raises ServingError."""
    return [_load(target) for target in dict.fromkeys(targets)]


def _load(target: str) -> Consumer:
    from asyncrevoke.replays.target import (
        TargetError,
        find_consumer,
        from_the_module,
        line_of_the_module,
    )

    try:
        return find_consumer(target)
    except TargetError as error:
        raise print_user_error(error, USAGE) from error
    except ConfigError as error:
        raise print_user_error(error, USAGE, line_of_the_module(error)) from error
    except Exception as error:
        log_events.APPLICATION_NOT_IMPORTED.write_to(
            log(), application=target, exc_info=from_the_module(error)
        )
        raise ServingError(FAILED, error) from error


def serve(
    consumers: Sequence[Consumer],
    output: LogOutput,
    around: Callable[[Sequence[Consumer]], AbstractAsyncContextManager[object]],
) -> None:
    """Await ``run()`` of all consumers inside the context manager that ``around`` returns. Raises
    ServingError.

    After the consumers have closed, the process ends shortly after their close_timeout, even if
    other parts of the application are running.
    """

    async def main() -> None:
        async with around(consumers):
            code = FAILED
            try:
                await _run_all(consumers)
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else FAILED
                raise
            finally:
                closing = [
                    consumer.closes_by for consumer in consumers if consumer.closes_by is not None
                ]
                if closing:
                    left = max(closing) - asyncio.get_running_loop().time()
                    end_process_within(left, code)

    try:
        asyncio.run(main())
    except HealthPortError as error:
        raise print_user_error(error, FAILED) from error
    except Exception as error:
        if isinstance(error, ConfigError) and not output.has_shown(error):
            raise print_user_error(error, USAGE) from error  # before the consumer ran
        if not output.has_shown(error):
            brief = isinstance(error, AsyncRevokeError)
            log_events.APPLICATION_FAILED.write_to(
                log(), error=named_error(error), **{} if brief else {"exc_info": error}
            )
        raise ServingError(FAILED, error) from error


async def _run_all(consumers: Sequence[Consumer]) -> None:
    """Run consumers until all have closed. If one fails, the others drain, and its error is
    raised."""
    if len(consumers) == 1:
        return await consumers[0].run()
    failures: list[BaseException] = []

    async def run_one(consumer: Consumer) -> None:
        if failures:
            return
        try:
            await consumer.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler, too
            if failures:
                log_events.ANOTHER_CONSUMER_FAILED.write_to(log(), exc_info=error)
            failures.append(error)
            for other in consumers:
                with suppress(IllegalStateError):  # not entered yet
                    other.stop()

    async with asyncio.TaskGroup() as running:
        for consumer in consumers:
            running.create_task(run_one(consumer))
    if failures:
        raise failures[0]
    return None


def end_process_within(seconds: float, code: int) -> None:
    """End the process with ``code`` if it still runs shortly after ``seconds``, the rest of
    close_timeout.

    Python waits without a limit for the application's threads (as of ``asyncio.to_thread``), for
    tasks that ignore cancellation, and for atexit functions. Call this after the consumer has
    closed, so that no record is affected.
    """
    timer = threading.Timer(until_process_ends(seconds), _end, (code,))
    timer.name = "asyncrevoke close_timeout"
    timer.daemon = True
    timer.start()


def _end(code: int) -> None:
    ours = (threading.current_thread(), threading.main_thread())
    threads = [
        thread.name for thread in threading.enumerate() if thread not in ours and not thread.daemon
    ]
    log_events.PROCESS_ENDED.write_to(log(), threads=threads)
    logging.shutdown()
    os._exit(code)


def print_user_error(error: Exception, code: int, line: str = "") -> ServingError:
    """Print a user's error, with the ``line`` of their file. Returns the exception to raise."""
    print_error(f"{line}: {error}" if line else error)
    return ServingError(code, error)


def log() -> EventLog:
    """The log of ``asyncrevoke run``. Looked up late, because ``logging.config`` in an application
    disables existing loggers."""
    return EventLog(logger="asyncrevoke.run")
