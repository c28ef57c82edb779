"""Abandons tasks that do not exit when cancelled, so that asyncio.run does not wait for them."""

from __future__ import annotations

import asyncio


def abandon(task: asyncio.Task[None]) -> None:
    """Stop waiting for ``task``, which did not exit when it was cancelled.

    When its main coroutine has returned, ``asyncio.run`` cancels all other tasks and waits for
    them: one that catches its cancellation would keep the process alive for ever. So the task is
    removed from asyncio's list of tasks. A later result or error is dropped.
    """
    asyncio._unregister_task(task)  # noqa: SLF001
    # The caller has logged that it abandons the task.
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - no type knows it
    task.add_done_callback(_drop_error)


def _drop_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
