"""A client in a process of its own, which sends what it has measured over a pipe."""

from __future__ import annotations

import contextlib
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, cast

import psutil

from benchmarks.report.printing import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnContext, SpawnProcess


@contextlib.contextmanager
def client_process(
    context: SpawnContext, target: Callable[..., None], *arguments: object
) -> Generator[tuple[SpawnProcess, Connection]]:
    """Call ``target`` with these arguments and a pipe; it is killed when the block ends."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        # On Windows, it has another type.
        yield process, cast("Connection", cast("object", ours))
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def sending_process(
    context: SpawnContext, target: Callable[..., None], *arguments: object
) -> Generator[None]:
    """Call ``target`` with these arguments and an event, which is set when the block ends."""
    end = context.Event()
    process = context.Process(target=target, args=(*arguments, end), daemon=True)
    process.start()
    try:
        yield
    finally:
        end.set()
        process.join(10)
        process.kill()
        process.join()


def received(
    pipes: Sequence[Connection], who: str, wanted: type[object], deadline: float
) -> object:
    """The next value that comes over one of these. Raises MeasurementError if there is none within
    ``deadline`` seconds, or another one: a client's traceback."""
    ready = wait(pipes, deadline)
    if not ready:
        raise MeasurementError(f"{who}: nothing within {deadline:.0f} s")
    try:
        value: object = cast("Connection", ready[0]).recv()
    except EOFError:
        raise MeasurementError(f"{who} died; see above") from None
    if not isinstance(value, wanted):
        raise MeasurementError(f"{who} failed: {value}")
    return value


def cpu_seconds(process: SpawnProcess) -> float:
    """Seconds of CPU time of a client: its process, and a JVM that it has started."""
    assert process.pid is not None
    first = psutil.Process(process.pid)
    times = [each.cpu_times() for each in (first, *first.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))
