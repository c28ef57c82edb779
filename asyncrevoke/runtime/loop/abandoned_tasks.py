"""Tasks that were cancelled and go on: nobody waits for them any more, asyncio.run included."""

from __future__ import annotations

import asyncio


def abandon(task: asyncio.Task[None]) -> None:
    """Let ``task`` go on for nobody.

    ``asyncio.run`` cancels the tasks of its loop and waits for all of them when its main coroutine
    has returned: a task that catches its cancellation would keep the process alive for ever. So the
    task is taken off asyncio's list of tasks, by the function that is documented for that. If it
    ends later, its result or error is dropped.
    """
    asyncio._unregister_task(task)  # noqa: SLF001
    # Whoever abandons it has said so in the log.
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - no type knows it
    task.add_done_callback(_drop_error)


def _drop_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
