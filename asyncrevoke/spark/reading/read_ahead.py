"""Reading on the worker's loop while the task's own thread is busy with what was read before."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.spark.reading.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from contextlib import AbstractAsyncContextManager

    T = TypeVar("T")


def read_ahead(
    reader: AbstractAsyncContextManager[object],
    read: Callable[[], Coroutine[object, object, Sequence[T]]],
) -> Generator[Sequence[T]]:
    """What ``read`` gives until that is nothing, with ``reader`` entered; always one read ahead."""
    worker = Worker.current()
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
