"""Has records decoded to columns for the handlers that receive these."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.arrow.arrow_steps import ColumnSession
    from asyncrevoke.handlers.matching import HandlerLookup
    from asyncrevoke.handlers.policy.registration import Handler

# A poll takes up to so many batches, of as many partitions, as far as max_in_flight permits.
_BATCHES_AT_ONCE = 8


async def use_columns(session: ColumnSession, lookup: HandlerLookup) -> None:
    """Before handlers are called: compile what their columns need, in a thread, and have records of
    topics decoded to columns whose only handler receives these."""
    if not any(_takes_columns(handler) for handler in lookup.handlers):
        return
    from asyncrevoke.client.columns.poll_columns import compile_loops

    if session.uses_threads:
        await asyncio.to_thread(compile_loops, COLUMNS)

    def has_columns(topic: str) -> bool:
        handlers = lookup.handlers_of(topic)
        # Delays read the headers of records of retry topics.
        return (
            len(handlers) == 1
            and _takes_columns(handlers[0])
            and (handlers[0].retry_topic is None or handlers[0].retry_topic.topic != topic)
        )

    at_once = max(one.batch.max_records for one in lookup.handlers if one.batch is not None)
    session.decode_columns(COLUMNS, at_once * _BATCHES_AT_ONCE, has_columns)


def _takes_columns(handler: Handler) -> bool:
    return handler.batch is not None and handler.batch.columns is not None
