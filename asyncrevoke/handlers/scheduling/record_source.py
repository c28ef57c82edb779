"""The consumer's part that handlers use: it returns records, and counts them as done or abandoned.

All methods belong to the event loop's thread; those that are not ``async`` return at once and never
call back into the caller. A record's ``tracker_id`` names the offset tracker that counts it: each
assignment and each seek of a partition starts another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.client.core.commit.returned_records import InFlightLimits
    from asyncrevoke.client.model import PollResult, Record, TopicPartition
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard


class TakenRecords(Protocol):
    """Records that were taken from the consumer, until each is done or abandoned.

    Implemented by :class:`Session`, in a task group by :class:`TaskRecords`.
    """

    def complete(self, record: Record) -> bool:
        """The record is done. Records may be completed in any order; no commit passes a record that
        is not done.

        Returns False, without effect, if the record was done already, or if its partition is lost
        or released.
        """
        ...

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done; records for which :meth:`complete` returns False are ignored."""

    def abandon(self, record: Record) -> None:
        """The record's handler has ended, and the record is *not* done.

        The record is no longer in flight, so it delays neither a revocation nor closing. No commit
        passes it, so the next owner processes it. Without effect if it is done already, or if its
        partition is lost or released.

        If this member keeps the partition (the revocation is withdrawn, or the partition is
        resumed), it is read again from this record on, without the records that are done.
        """

    def abandon_all(self, records: Sequence[Record]) -> None:
        """Like :meth:`abandon`, also for records that no handler has started."""

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """Return the offset from which unstarted records may be dropped before a revocation.

        ``unstarted`` are all unstarted records that the partition's current offset tracker counts.
        Handle those below the returned offset first: otherwise the next owner would process the
        done records after them again. Records after the last started one may always be dropped.
        """
        ...

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Give back the records of ``partition`` after ``offset``, none of which has started.

        They are no longer in flight, and the position moves back before them: the next owner
        processes them, or this member if the revocation is withdrawn. Applies to the partition's
        current offset tracker; without effect if the partition is lost or released.
        """

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether a revocation of this partition is announced and not withdrawn."""
        ...

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by a failure or by the user."""
        ...

    def pause_after_failure(self, record: Record) -> None:
        """Deliver no records of this record's partition, which stays assigned.

        When it is resumed, its abandoned records are read again, with the same offset tracker.
        Without effect if it is lost or released.
        """

    def resume_after_failure(self, partition: TopicPartition) -> None:
        """End such a pause. Without effect if the partition is lost or released."""


class RecordLocks(Protocol):
    """The locks of acquired records, in a share group: a record whose lock has passed may be with
    another member, so no handler is called with it, and it is not acknowledged.

    ``complete`` accepts a record, and ``abandon`` releases it. Implemented by
    :class:`ShareSession`.
    """

    def begin(self, record: Record) -> bool:
        """A handler is about to be called with this record; False if its lock has passed."""
        ...

    def wait(self, records: Sequence[Record], release_after: float | None = None) -> None:
        """These records wait for the next call of their handler, or are released after so many
        seconds: they are renewed, and use no slot meanwhile."""

    def reject(self, record: Record) -> None:
        """The record is not to be delivered again: its dead letter is acknowledged, or the handler
        gives it up. A later ``complete`` has no effect."""

    def is_last_delivery(self, record: Record) -> bool:
        """Whether the broker archives the record when it is released, as far as is known."""
        ...

    def lock_deadline(self, record: Record) -> float | None:
        """When the lock passes unless it is renewed, on the event loop's clock; None if it has."""
        ...


class RecordSource(TakenRecords, Protocol):
    """The consumer, for a handler runner or a task group.

    A handler runner is the only caller of :meth:`poll`: each record that it returns is in flight
    until ``complete``, ``abandon`` or ``drop_after``. A task group never polls: the user's loop
    does, and the group takes over single records with :meth:`submit`.

    Implemented by :class:`Session`, in a replay by :class:`RangeSource`.
    """

    @property
    def membership(self) -> MembershipGuard:
        """Decides whether records that were returned may start."""
        ...

    @property
    def in_flight(self) -> int:
        """Records that a poll has returned and that are not done, dropped, abandoned or lost."""
        ...

    async def poll(self) -> PollResult:
        """Wait for records, a newly announced revocation, a loss, or an error. One call at a time.

        Returns at most ``max_in_flight`` less ``in_flight`` records; while this is 0, it returns
        only revocations and losses. While it waits, it releases partitions whose revocation is
        announced as soon as none of their records is in flight: ``complete``, ``abandon`` and
        ``drop_after`` wake it. A loss is listed before, or together with, the first records of a
        later assignment of the same partition.

        Raises StopAsyncIteration after ``stop`` or while the consumer closes, and the errors of the
        iterator. If cancelled, the next call returns the same records and losses.
        """
        ...

    def stop(self) -> None:
        """Deliver no further records: a waiting ``poll`` and later ones raise StopAsyncIteration.

        Idempotent. The consumer stays open: records in flight can still be completed.
        """

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called, or the consumer is closing."""
        ...

    def revocation_ends_in(self, partition: TopicPartition) -> float | None:
        """Return the seconds until a revoked partition is lost unless it is released before.

        None if it has no deadline, or is not revoked.
        """
        ...

    def submit(self, record: Record) -> bool:
        """A task takes over this record: the iterator's next step does not complete it.

        Returns False, without effect, if the record is done already, or if its partition is lost or
        released. Raises ValueError for a record of another consumer.
        """
        ...

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        """Apply these limits from now on, besides ``max_in_flight``."""

    def awaiting_library(self) -> AbstractContextManager[None]:
        """A block in which the caller awaits the library, not the user's code.

        The time does not count towards ``max_poll_interval``, and partitions whose revocation is
        announced are released as soon as none of their records is in flight. The block is not a
        step of the iterator: it does not complete the last batch.
        """
        ...
