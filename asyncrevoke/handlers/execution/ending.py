"""How handling ends, however it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.handlers.policy.batch import Item, first_offset

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.worker_pool import Workers


async def end(workers: Workers[Item], backlog: Backlog, log: Log) -> None:
    """Close the workers, and give up what has not been done: also if this is cancelled."""
    left: list[Item] = []
    try:
        left = await workers.close()
    finally:
        # What waits behind a failed record, or was never started.
        backlog.clear()
        for item in left:
            log.error(
                "a call was cancelled and has not ended: it is left behind",
                topic=item.topic,
                partition=item.partition,
                offset=first_offset(item),
            )
            backlog.abandon(item)
