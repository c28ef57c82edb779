"""What handlers need of a consumer: records, and a place to count them as done.

``handlers/`` never sees the Consumer. It knows a record with the ``tracker_id`` that counts it, and
this protocol. All methods belong to the event loop's thread; those that are not ``async`` return
at once and never call back into the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard


class RecordSource(Protocol):
    """Where records come from, and where they are counted as done.

    Used in two ways. The handler runner is the only poller: it calls ``poll``, and each record
    that it gets is held until ``complete``, ``abandon`` or ``drop_after``. The task group never
    polls: the user's own loop does, and the group takes single records of its batches with
    ``submit``.
    """

    @property
    def membership(self) -> MembershipGuard:
        """Whether records that were returned may begin."""
        ...

    @property
    def in_flight(self) -> int:
        """Records that were returned by a poll and are neither done nor dropped nor lost."""
        ...

    async def poll(self) -> PollResult:
        """One step (R1 to R7), without a timeout; at any time at most one call.

        Waits for records, a new revoke, a new loss or an error. Every record returned is *held*:
        the start of the next step does not count it as done, only ``complete`` does. Returns no
        more records than there is room for (``max_in_flight`` less ``in_flight``); while there is
        none it still returns for revokes and losses. While it waits, partitions of an announced
        revoke are released as soon as they have drained (R5), so ``complete``, ``abandon`` and
        ``drop_after`` must be able to wake it. A loss is listed at the latest together with the
        first records of a later assignment of the same partition.

        Raises StopAsyncIteration once ``stop`` was called or the consumer is closing, and errors
        as the iterator does. If cancelled, no record and no ``lost`` entry is gone: the next call
        returns them.
        """
        ...

    def stop(self) -> None:
        """No further records: a waiting ``poll`` and every later one raises StopAsyncIteration.

        Idempotent. It does not close the consumer: what was taken can still be completed.
        """
        ...

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called, or the consumer is closing."""
        ...

    def submit(self, record: Record) -> bool:
        """A task is about to hold this record: the next step no longer counts it as done.

        False if its partition is lost or released (or the record is done already); then nothing
        changes. ValueError for a record of another consumer.
        """
        ...

    def complete(self, record: Record) -> bool:
        """The record is done. False if it was done already, or its partition is lost or released;
        then nothing changes. Any order; the commit point moves contiguously.
        """
        ...

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are done; what :meth:`complete` would refuse is passed over. Hot path."""
        ...

    def abandon(self, record: Record) -> None:
        """The record has ended and is *not* done: it failed, or its task was cancelled.

        It no longer holds a release or a close back (``in_flight`` shrinks), and the commit point
        never moves past it, so the next owner gets it again. Nothing happens if it is done
        already, or its partition is lost or released.

        A partition that goes on afterwards (its revoke is withdrawn, or it is resumed) returns it
        again, and all after it that is not done.
        """
        ...

    def abandon_all(self, records: Sequence[Record]) -> None:
        """Like :meth:`abandon`, for records of which some may never have been started."""
        ...

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """The partition is to be given up: from which offset on may unstarted records be dropped?

        ``unstarted`` are all of these, of the partition's current tracker. Those before that offset
        have to be worked off, or the next owner would handle records again that are done beyond
        them. What follows the last record that was started may be dropped in any case.
        """
        ...

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Give up the records of ``partition`` after ``offset`` that a poll has returned.

        None of them was started. They are no longer in flight and the position goes back before
        them: the next owner gets them (we ourselves, if the revoke is withdrawn). Concerns the
        partition's current tracker; nothing happens if it is lost or released.
        """
        ...

    def limit_in_flight(self, limit_of: Callable[[str], tuple[str, int] | None]) -> None:
        """For each topic, a name and how many records of all topics of that name may be in flight
        (one more for each partition at most). None for a topic that only ``max_in_flight`` bounds.
        """
        ...

    def is_revoking(self, partition: TopicPartition) -> bool:
        """Whether a revoke of this partition has been requested and is not withdrawn.

        What is abandoned of it meanwhile is returned again if the revoke is withdrawn.
        """
        ...

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether this partition is paused, by whomever."""
        ...

    def pause(self, record: Record) -> None:
        """Return nothing more of this record's partition; it stays ours.

        When the user resumes it, it goes on with the first record that was abandoned, under
        another tracker. Nothing happens if it is lost or released.
        """
        ...

    def parked(self) -> AbstractContextManager[None]:
        """Inside this block the caller awaits the library, not the user's code: a poll boundary.

        The time does not count towards ``max_poll_interval`` (R10), and partitions of an
        announced revoke are released as soon as they have drained (R5). It is no start of a step:
        the last batch does not count as processed by it.
        """
        ...
