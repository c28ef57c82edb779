"""A consumer that returns a placeholder for a record that it cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.session import Session


class ReturnsUnreadable(RangeConsumer):
    """A consumer that returns an ``UnreadableRecord`` as the last record of a partition instead of
    raising UnreadableRecordError. The position moves past the record."""

    def _open(self) -> Session:
        session = super()._open()
        session.core.deliver_unreadable()
        return session
