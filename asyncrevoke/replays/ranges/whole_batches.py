"""A consumer whose records are whole record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.runtime.session.open_session import open_session
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.session import Session


class WholeBatches(RangeConsumer):
    """Each record is a batch: the offset of its last record, and its bytes as the value.

    For reading only: counting these records counts batches.
    """

    def _open(self) -> Session:
        return open_session(self._config, None, whole_batches=True)
