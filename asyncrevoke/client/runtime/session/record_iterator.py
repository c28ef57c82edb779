"""Iterates over single records: each is completed when the next one is asked for."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from asyncrevoke.client.model import PollResult, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.client.runtime.session.session import Session


class RecordIterator:
    """An async iterator over single records. Cancelling ``__anext__`` loses none of them.

    It has the records of one step. Before a change that concerns them (a seek, a revocation), the
    core takes back those that it has not returned; see :class:`ReaderRecords`.
    A consumer has one iterator, so that a second loop continues where the first one stopped. A
    journal's ``recorder`` gets each record as a batch of its own. While the membership is not
    confirmed, no record is returned: a step waits.
    """

    def __init__(
        self,
        session: Session,
        membership: MembershipGuard,
        recorder: SessionRecorder | None = None,
    ) -> None:
        self._session = session
        self._membership = membership
        # Until when records may be returned, by a clock that is faster to read than the loop's.
        self._confirmed_until = float("-inf")
        self._recorder = recorder
        self._records: Sequence[Record] = ()
        self.returned = 0
        self._end = 0
        self._reported = 0

    def __aiter__(self) -> RecordIterator:
        return self

    async def __anext__(self) -> Record:
        recorder = self._recorder
        if recorder is not None:
            recorder.step_begun(counts=True)
        while (taken := self.returned) == self._end or (
            monotonic() > self._confirmed_until and self._must_confirm()
        ):
            await self._session.poll(self)
        self.returned = taken + 1
        record = self._records[taken]
        if recorder is not None:
            recorder.batch_returned(PollResult({record.topic_partition: [record]}))
        return record

    def _must_confirm(self) -> bool:
        seconds = self._membership.may_begin_for()
        self._confirmed_until = monotonic() + seconds
        return seconds < 0

    def take_unreported(self) -> dict[TopicPartition, list[Record]]:
        """The records that were returned since the last call, by partition."""
        found: dict[TopicPartition, list[Record]] = {}
        for record in self._records[self._reported : self.returned]:
            found.setdefault(record.topic_partition, []).append(record)
        self._reported = self.returned
        return found

    def begin(self, records: Sequence[Record]) -> None:
        """Return these from now on."""
        self._records = records
        self.returned = self._reported = 0
        self._end = len(records)

    def end(self) -> None:
        """Return no more of them."""
        self._end = self.returned


class ReadReports:
    """Reports them to observers now and then, since the loop may never take the rest of a batch."""

    def __init__(self, observers: Observers | None) -> None:
        self._observers = observers
        self._reader: RecordIterator | None = None

    def read_by(self, reader: RecordIterator) -> None:
        """Records are taken from this iterator from now on."""
        self._reader = reader

    def report(self) -> None:
        """Report what was taken since the last call."""
        if self._observers is not None and self._reader is not None:
            read = self._reader.take_unreported()
            if read:
                self._observers.on_poll(PollResult(read))
