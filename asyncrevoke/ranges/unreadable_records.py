"""A consumer that returns a placeholder for a record that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.ranges.range_consumer import RangeConsumer

if TYPE_CHECKING:
    from asyncrevoke.runtime.session.session import Session


class ReturnsUnreadable(RangeConsumer):
    """Polls return an ``UnreadableRecord`` as the last record of its partition, and raise no
    UnreadableRecordError. The position moves past it."""

    def _open(self) -> Session:
        session = super()._open()
        session.core.fetcher.collector.deliver_unreadable()
        return session
