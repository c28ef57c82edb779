"""Records one by one: each is done when the next is asked for."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.model import PollResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.core.partition.hand_out import RecordReader
    from asyncrevoke.model import Record, TopicPartition
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard


class Steps(Protocol):
    """What records are taken from."""

    async def step_for(self, reader: RecordReader) -> PollResult:
        """One step whose records this reader hands out; StopAsyncIteration at the end."""
        ...


class RecordIterator:
    """An async iterator over single records. Cancelling ``__anext__`` loses none of them.

    It holds the records of one step, and the core takes back those that it has not handed out
    before anything changes that concerns them; see :mod:`asyncrevoke.core.partition.hand_out`.
    There is one
    per consumer, so that a second loop goes on where the first one stopped. A ``witness`` is told
    of each record like of a batch that has only this one. While the membership is in doubt it
    hands out nothing that it holds, and makes a step, which waits.
    """

    def __init__(
        self, steps: Steps, membership: MembershipGuard, witness: Witness | None = None
    ) -> None:
        self._steps = steps
        self._membership = membership
        # Until when what is held may be handed out, by a clock that costs less than the loop's.
        self._until = float("-inf")
        self._witness = witness
        self._records: Sequence[Record] = ()
        self._taken = 0
        self._end = 0
        self._reported = 0

    def __aiter__(self) -> RecordIterator:
        return self

    async def __anext__(self) -> Record:
        witness = self._witness
        if witness is not None:
            witness.asked(counts=True)
        while (taken := self._taken) == self._end or (
            monotonic() > self._until and self._is_in_doubt()
        ):
            await self._steps.step_for(self)
        self._taken = taken + 1
        record = self._records[taken]
        if witness is not None:
            witness.delivered(PollResult({record.topic_partition: [record]}))
        return record

    def _is_in_doubt(self) -> bool:
        seconds = self._membership.may_begin_for()
        self._until = monotonic() + seconds
        return seconds < 0

    def unreported(self) -> dict[TopicPartition, list[Record]]:
        """What was handed out since this was last called, by partition."""
        found: dict[TopicPartition, list[Record]] = {}
        for record in self._records[self._reported : self._taken]:
            found.setdefault(record.topic_partition, []).append(record)
        self._reported = self._taken
        return found

    # -- RecordReader ----------------------------------------------------------------------------

    @property
    def handed_out(self) -> int:
        """How many records of the last step the user has."""
        return self._taken

    def begin(self, records: Sequence[Record]) -> None:
        """Hand these out from now on."""
        self._records = records
        self._taken = self._reported = 0
        self._end = len(records)

    def end(self) -> None:
        """Hand out no more of them."""
        self._end = self._taken
