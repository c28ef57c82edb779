"""Reads on the worker's event loop while the task's thread processes what was read before."""

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
    """The results of ``read`` until one is empty, with ``reader`` entered and one read ahead."""
    worker = PythonWorker.current()
    worker.do(_enter(reader))
    coming = None
    try:
        coming = worker.start(read())
        while read_now := coming.result():
            coming = worker.start(read())
            yield read_now
    finally:
        if coming is not None:
            coming.cancel()
        worker.do(_leave(reader))


async def _enter(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aenter__()


async def _leave(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aexit__(None, None, None)
