"""How handling ends, however it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.handlers.batch import Item, first_offset

if TYPE_CHECKING:
    from asyncrevoke.handlers.backlog import Backlog
    from asyncrevoke.handlers.log import Log
    from asyncrevoke.handlers.workers import Workers


async def end(workers: Workers[Item], backlog: Backlog, log: Log, left_behind: str) -> None:
    """Close the workers, and give up what has not been done: also if this is cancelled.

    ``left_behind`` is the line in the log for a call that was cancelled and has not ended.
    """
    left: list[Item] = []
    try:
        left = await workers.close()
    finally:
        # What waits behind a failed record, or was never started.
        backlog.clear()
        for item in left:
            log.error(
                left_behind,
                topic=item.topic,
                partition=item.partition,
                offset=first_offset(item),
            )
            backlog.abandon(item)
