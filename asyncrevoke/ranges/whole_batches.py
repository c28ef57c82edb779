"""A consumer that gives record batches as they are, where single records are not wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.consumer import Consumer
from asyncrevoke.runtime.session.open_session import open_session

if TYPE_CHECKING:
    from asyncrevoke.runtime.session.session import Session


class WholeBatches(Consumer):
    """Each of its records is a batch: the offset of its last record, its bytes as the value.

    For reading alone: to count such records one by one would count batches.
    """

    def _open(self) -> Session:
        return open_session(self._config, None, whole_batches=True)
