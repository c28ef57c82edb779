"""The connection over which a stream requests the end offsets of its topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from asyncrevoke.replays.ranges.consumers import consumer_of
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.reading.worker import PythonWorker

if TYPE_CHECKING:
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer
    from asyncrevoke.spark.source.options import SourceOptions


class LogClient:
    """Connects at the first call of :meth:`bounds`, and stays connected until :meth:`close`.
    Picklable before. Blocks, and raises the errors of a consumer."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer: RangeConsumer | None = None

    def bounds(self) -> LogBounds:
        """The selected topics that exist, with their current first and last offsets."""
        worker = PythonWorker.current()
        if self._consumer is None:
            consumer = consumer_of(replace(self._options.config(), group_id=None))
            worker.run(consumer.start())
            self._consumer = consumer
        return worker.run(LogBounds.of_existing(self._consumer, self._options.topics))

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            PythonWorker.current().run(consumer.aclose())
