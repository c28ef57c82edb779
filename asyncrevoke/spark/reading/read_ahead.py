"""Reads on the worker's event loop while the thread of the task processes earlier results."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.spark.reading.worker import PythonWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from contextlib import AbstractAsyncContextManager

    T = TypeVar("T")


def read_ahead(
    reader: AbstractAsyncContextManager[object],
    read: Callable[[], Coroutine[object, object, Sequence[T]]],
) -> Generator[Sequence[T]]:
    """The results of ``read``, up to an empty one. Enters ``reader``, and reads one result
    ahead."""
    worker = PythonWorker.current()
    worker.run(_enter(reader))
    coming = None
    try:
        coming = worker.start(read())
        while read_now := coming.result():
            coming = worker.start(read())
            yield read_now
    finally:
        if coming is not None:
            coming.cancel()
        worker.run(_leave(reader))


async def _enter(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aenter__()


async def _leave(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aexit__(None, None, None)
