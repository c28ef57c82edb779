"""Records of one step that an application takes one by one, as ``records()`` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record


class SingleRecords:
    """The reader of one application, :mod:`asyncrevoke.client.core.partition.reader_records`."""

    def __init__(self) -> None:
        self._records: Sequence[Record] = ()
        self._taken = 0
        self._end = 0

    @property
    def returned(self) -> int:
        """How many records of the last step the application has."""
        return self._taken

    def begin(self, records: Sequence[Record]) -> None:
        """Hand these out from now on."""
        self._records = records
        self._taken, self._end = 0, len(records)

    def end(self) -> None:
        """Hand out no more of them."""
        self._end = self._taken

    def take(self) -> Record | None:
        """The next record; None if a step has to be made for it."""
        if self._taken == self._end:
            return None
        self._taken += 1
        return self._records[self._taken - 1]
