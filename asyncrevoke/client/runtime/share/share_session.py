"""An entered consumer that is a member of a share group (KIP-932)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.model import (
    PollResult,
    TopicPartition,
    UnreadableRecord,
    UnreadableShareRecord,
)
from asyncrevoke.client.runtime.session.entered_session import EnteredSession
from asyncrevoke.client.runtime.session.membership_guard import NoMembership

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from asyncrevoke.client.core.commit.returned_records import InFlightLimits
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.runtime.session.parts import SessionParts
    from asyncrevoke.client.runtime.session.session import Session

# The session of a consumer, of either type of group.
ConsumerSession: TypeAlias = "Session | ShareSession"


class ShareSession(EnteredSession):
    """The session of a consumer that acquires records.

    Also the :class:`~asyncrevoke.handlers.scheduling.record_source.RecordSource` and the
    :class:`~asyncrevoke.handlers.scheduling.record_source.RecordLocks` of handlers. No partition is
    owned: what methods about partitions return is that of one which is never revoked or paused.
    """

    def __init__(self, parts: SessionParts, core: ShareCore) -> None:
        super().__init__(parts)
        self.core = core
        # A record may be started until its lock passes, whoever is a member.
        self.membership = NoMembership()
        # What the core has returned and poll() has not.
        self._acquired: list[Sequence[AcquiredRecord]] = []
        # Called for each record, and mostly without effects that the driver carries out.
        self._begin = cast("Callable[[float, Record], bool]", core.begin)
        self._now = parts.driver.now

    def start(self) -> None:
        """Begin to connect."""
        if self.recorder is not None:
            self.recorder.session_opened(self.core, self._driver.fail)
        super().start()

    @property
    def locks(self) -> ShareSession:
        """Decides whether handlers may be called with records."""
        return self

    # --- RecordSource ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Records that are locked for this member, or whose acknowledgement has no response."""
        return len(self.core.held)

    @property
    def stopping(self) -> bool:
        """Whether there are no further records."""
        return self.core.stopping or self.shutdown.begun

    async def poll(self) -> PollResult:
        """Wait for records that were acquired; StopAsyncIteration when the consumer is stopping.

        Of a partition, only the last record may be unreadable. Raises errors of partitions once,
        and a FatalError each time. Cancelling it loses no record.
        """
        self.check_loop()
        if self.recorder is not None and self.recorder.behind:
            await self.recorder.flush()
        driver = self._driver
        while True:
            if driver.error is not None:
                raise driver.error
            driver.wake.clear()
            if not self._acquired:
                self._acquired = driver.call(self.core.poll)
            if self.stopping:
                raise StopAsyncIteration
            if self._acquired:
                return self._result()
            await driver.wake.wait()

    def _result(self) -> PollResult:
        """The records by partition, up to the first unreadable one of each."""
        slices: dict[TopicPartition, list[Record]] = {}
        later: list[Sequence[AcquiredRecord]] = []
        unreadable: set[TopicPartition] = set()
        for records in self._acquired:
            partition = records[0].topic_partition
            end = 0 if partition in unreadable else len(records)
            # The types are compared without a step of Python for each record.
            if end and UnreadableShareRecord in set(map(type, records)):
                unreadable.add(partition)
                end = 1 + next(i for i, r in enumerate(records) if isinstance(r, UnreadableRecord))
            if end:
                slices.setdefault(partition, []).extend(records[:end])
            if end < len(records):
                later.append(records[end:])
        self._acquired = later
        result = PollResult(slices)
        if self.observers is not None:
            self.observers.on_poll(result)
        return result

    def submit(self, record: Record) -> bool:
        """Whether the record is locked: a task takes it."""
        return self.core.lock_deadline(_acquired(record)) is not None

    def complete(self, record: Record) -> bool:
        """The record is handled, and its results are acknowledged; False if its lock has passed."""
        return self._driver.call(self.core.accept, _acquired(record))

    def complete_all(self, records: Sequence[Record]) -> None:
        """These records are handled; those whose locks have passed are ignored."""
        self._driver.call(self.core.accept_all, cast("Sequence[AcquiredRecord]", records))

    def abandon(self, record: Record) -> None:
        """Release the record: it is delivered again at once, to any member."""
        self.abandon_all((record,))

    def abandon_all(self, records: Sequence[Record]) -> None:
        """Release these records."""
        self._driver.call(self.core.release_all, cast("Sequence[AcquiredRecord]", records))

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        """Nothing: a fetch limits the records of all topics together."""

    def awaiting_library(self) -> AbstractContextManager[None]:
        """Nothing limits the time between two polls."""
        return nullcontext()

    # --- records ---------------------------------------------------------------------------------

    def begin(self, record: Record) -> bool:
        """A handler is about to be called with this record; False if its lock has passed."""
        if self.core.limits.limits_unstarted:
            # Another one may be acquired.
            return self._driver.call(self.core.begin, _acquired(record))
        return self._begin(self._now(), record)

    def wait(self, records: Sequence[Record], release_after: float | None = None) -> None:
        """These records wait for the next call of their handler, or are released after so many
        seconds: they are renewed, and use no slot meanwhile."""
        waiting = cast("Sequence[AcquiredRecord]", records)
        self._driver.call(self.core.wait_all, waiting, release_after)

    def reject(self, record: Record) -> None:
        """The record is not to be delivered again, to any member."""
        self._driver.call(self.core.reject, _acquired(record))

    def is_last_delivery(self, record: Record) -> bool:
        """Whether the broker archives the record when it is released, as far as is known."""
        limit = self.core.delivery_limit
        return limit is not None and _acquired(record).delivery_count >= limit

    def lock_deadline(self, record: Record) -> float | None:
        """When the lock passes unless it is renewed, on the event loop's clock; None if it has."""
        return self.core.lock_deadline(_acquired(record))

    # --- partitions ------------------------------------------------------------------------------

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        """All unstarted records may be dropped."""
        del partition, unstarted
        return 0

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Records that have not started are released when the consumer stops."""

    def is_revoking(self, partition: TopicPartition) -> bool:
        """No partition is revoked."""
        del partition
        return False

    def revocation_ends_in(self, partition: TopicPartition) -> float | None:
        """No partition is revoked."""
        del partition
        return None

    def is_paused(self, partition: TopicPartition) -> bool:
        """No partition is paused."""
        del partition
        return False

    def pause_after_failure(self, record: Record) -> None:
        """Nothing: other members would go on."""

    def resume_after_failure(self, partition: TopicPartition) -> None:
        """Nothing was paused."""


def _acquired(record: Record) -> AcquiredRecord:
    """A record that this session has returned."""
    return cast("AcquiredRecord", record)
