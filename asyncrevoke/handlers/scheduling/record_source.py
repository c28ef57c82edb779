"""What handlers need of a consumer: records, and a place to say what became of them.

Handlers never see the Consumer. All methods belong to the event loop's thread; those that are not
``async`` return at once and never call back into the caller. A record's ``tracker_id`` names the
offset tracker that counts it: each assignment and each seek of a partition starts another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.core.commit.completion_tracker import InFlightLimits
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard


class TakenRecords(Protocol):
    """Records that were taken from the consumer, until each is done or abandoned.

    Implemented by :class:`Session`, in a task group by :class:`TaskRecords`.
    """

    def complete(self, record: Record) -> bool:
        """The record is done. False, without effect, if it was done already, or if its partition is
        lost or released. Records may be completed in any order; the committed offset passes none
        that is not done.
        """
        ...

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done; those that :meth:`complete` returns False for are ignored. Called
        once in a turn of the event loop."""
        ...

    def abandon(self, record: Record) -> None:
        """No handler of the record runs any more, and it is *not* done.

        It delays neither a revocation nor closing (``in_flight`` shrinks). No commit passes it, so
        the next owner processes it. Without effect if it is done already, or if its partition is
        lost or released.

        If the partition stays (its revocation is withdrawn, or it is resumed), it is read again
        from this record on, without the records that are done.
        """
        ...

    def abandon_all(self, records: Sequence[Record]) -> None:
        """Like :meth:`abandon`, also for records that no handler has started."""
        ...

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """The partition is about to be revoked: from which offset on may unstarted records be
        dropped?

        ``unstarted`` are all of them that belong to the partition's current offset tracker. Those
        below the returned offset have to be handled first: otherwise the next owner would process
        again the records beyond them that are done. What follows the last started record may be
        dropped in any case.
        """
        ...

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Return the records of ``partition`` after ``offset``, none of which has started.

        They are no longer in flight, and the position moves back before them: the next owner
        processes them, or this member if the revocation is withdrawn. Concerns the partition's
        current offset tracker; without effect if the partition is lost or released.
        """
        ...

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether a revocation of this partition is announced and not withdrawn.

        Records that are abandoned meanwhile are delivered again if it is withdrawn.
        """
        ...

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by a failure or by the user."""
        ...

    def pause(self, record: Record) -> None:
        """Deliver nothing more of this record's partition; the partition stays assigned.

        When the user resumes it, it is read again from the first abandoned record on, with another
        offset tracker. Without effect if it is lost or released.
        """
        ...

    def resume(self, partition: TopicPartition) -> None:
        """End a pause that was not the user's. Without effect if it is lost or released."""
        ...


class RecordSource(TakenRecords, Protocol):
    """A consumer as handlers see it.

    A handler runner is its only poller: each record that :meth:`poll` returns is in flight until
    ``complete``, ``abandon`` or ``drop_after``. A task group never polls: the user's own loop does,
    and the group takes single records of its batches with :meth:`submit`.

    Implemented by :class:`Session`, in a replay by :class:`RangeSource`.
    """

    @property
    def membership(self) -> MembershipGuard:
        """Says whether records that were returned may start."""
        ...

    @property
    def in_flight(self) -> int:
        """Records that a poll has returned and that are not done, dropped, abandoned or lost."""
        ...

    async def poll(self) -> PollResult:
        """Wait for records, a newly announced revocation, a loss, or an error. One call at a time.

        Returns at most ``max_in_flight`` less ``in_flight`` records; while that is none, it still
        returns for revocations and losses. While it waits, partitions whose revocation is announced
        are released as soon as none of their records is in flight, so ``complete``, ``abandon`` and
        ``drop_after`` must be able to wake it. A loss is listed at the latest together with the
        first records of a later assignment of the same partition.

        Raises StopAsyncIteration once ``stop`` was called or the consumer is closing, and errors as
        the iterator does. If cancelled, nothing is lost: the next call returns the same records and
        losses.
        """
        ...

    def stop(self) -> None:
        """Deliver no further records: a waiting ``poll`` and later ones raise StopAsyncIteration.

        Idempotent. The consumer stays open: records in flight can still be completed.
        """
        ...

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called, or the consumer is closing."""
        ...

    def submit(self, record: Record) -> bool:
        """A task takes over this record: the next step of the iterator does not count it as done.

        False, without effect, if it is done already, or if its partition is lost or released.
        ValueError for a record of another consumer.
        """
        ...

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        """From now on these limits apply besides ``max_in_flight``."""
        ...

    def awaiting_library(self) -> AbstractContextManager[None]:
        """Inside this block the caller awaits the library, not the user's code.

        The time does not count towards ``max_poll_interval``, and partitions whose revocation is
        announced are released as soon as none of their records is in flight. It does not count as a
        new step: the last batch is not done by it.
        """
        ...
