"""Runs handlers on all records of a range."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.range_source import RangeSource

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.replays.opened_handlers import OpenedHandlers
    from asyncrevoke.replays.range_source import NextRecords
    from asyncrevoke.replays.result_rows import ResultRows


async def handle_all(
    opened: OpenedHandlers,
    partition: TopicPartition | None,
    read: NextRecords,
    outcomes: ResultRows,
) -> None:
    """Run the handlers on all records of ``read``, as a consumer does.

    ``partition`` is the partition of all records; None if there are several. Raises the error that
    stops the handlers, and ReplayError if they stop before the range ends.
    """
    context = replace(opened.context, log=outcomes, call_recorder=outcomes)
    source = RangeSource(partition, read, outcomes, context.max_in_flight)
    await HandlerRunner(source, opened.router, context).run()
    if not source.finished:
        raise ReplayError(f"{partition or 'reading'} has ended before its range did")
