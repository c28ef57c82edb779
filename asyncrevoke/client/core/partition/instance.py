"""One assignment of one partition, from being assigned to being released or lost.

Each assignment of a partition makes a new *instance*. When the group revokes the partition, the
instance stops fetching and delivering. A poll result announces the revocation, and only a later
poll may complete it (KIP-983). It completes when no record is in flight and the final commit is
acknowledged: then the instance is RELEASED, and only then does the group learn of it. An instance
that the group has taken away, or that misses its deadline, is LOST. RELEASED and LOST are final.

``TRANSITIONS`` lists all transitions; any other raises.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.core.partition.truncated_tracker import TruncatedTracker


class InstanceState(enum.Enum):
    """The state of an instance."""

    # Without a call of Python, which Enum.__hash__ would be.
    __hash__ = object.__hash__

    INIT = "init"
    ACTIVE = "active"
    REVOKE_REQUESTED = "revocation requested"
    ANNOUNCED = "announced"
    DELAYED = "delayed"
    COMMITTING = "flushing"
    RELEASED = "released"
    LOST = "lost"


class LifespanState(enum.Enum):
    """Where the lifespan of an instance is (:mod:`.lifespans`)."""

    NONE = "none"
    ENTERING = "entering"
    ENTERED = "entered"
    EXITING = "exiting"
    EXITED = "exited"


_DELIVERED = frozenset((LifespanState.NONE, LifespanState.ENTERED))
_UNFINISHED = frozenset((LifespanState.ENTERING, LifespanState.ENTERED, LifespanState.EXITING))


class Permissions(Value, frozen=True):
    """What an instance may do in a state."""

    fetch: bool
    deliver: bool
    commit: bool
    owned: bool


PERMISSIONS: dict[InstanceState, Permissions] = {
    #                        fetch  deliver commit owned
    # The user may commit an offset before the position is known.
    InstanceState.INIT: Permissions(False, False, True, True),
    InstanceState.ACTIVE: Permissions(True, True, True, True),
    InstanceState.REVOKE_REQUESTED: Permissions(False, False, True, True),
    InstanceState.ANNOUNCED: Permissions(False, False, True, True),
    InstanceState.DELAYED: Permissions(False, False, True, True),
    InstanceState.COMMITTING: Permissions(False, False, True, True),
    InstanceState.RELEASED: Permissions(False, False, False, False),
    InstanceState.LOST: Permissions(False, False, False, False),
}


class InstanceTransition(enum.Enum):
    """What may happen to an instance."""

    POSITIONED = "position found"
    REVOKE = "revocation requested"
    ANNOUNCE = "poll returned it in to_be_revoked"
    DELAY = "delay_revoke, or work in flight at the start of a poll"
    END_DELAY = "poll started while still delayed"
    COMMIT = "drained, final commit owed"
    RELEASE = "drained and everything acknowledged"
    WITHDRAW = "assigned again before it was released"
    LOSE = "taken away, or overdue"


_OWNED_REVOKING = (
    InstanceState.REVOKE_REQUESTED,
    InstanceState.ANNOUNCED,
    InstanceState.DELAYED,
    InstanceState.COMMITTING,
)

TRANSITIONS: dict[tuple[InstanceState, InstanceTransition], InstanceState] = {
    (InstanceState.INIT, InstanceTransition.POSITIONED): InstanceState.ACTIVE,
    (InstanceState.INIT, InstanceTransition.REVOKE): InstanceState.RELEASED,
    (InstanceState.INIT, InstanceTransition.COMMIT): InstanceState.COMMITTING,
    (InstanceState.ACTIVE, InstanceTransition.REVOKE): InstanceState.REVOKE_REQUESTED,
    (InstanceState.REVOKE_REQUESTED, InstanceTransition.ANNOUNCE): InstanceState.ANNOUNCED,
    (InstanceState.ANNOUNCED, InstanceTransition.ANNOUNCE): InstanceState.ANNOUNCED,
    (InstanceState.ANNOUNCED, InstanceTransition.DELAY): InstanceState.DELAYED,
    (InstanceState.DELAYED, InstanceTransition.DELAY): InstanceState.DELAYED,
    (InstanceState.DELAYED, InstanceTransition.END_DELAY): InstanceState.ANNOUNCED,
    (InstanceState.ANNOUNCED, InstanceTransition.COMMIT): InstanceState.COMMITTING,
    (InstanceState.DELAYED, InstanceTransition.COMMIT): InstanceState.COMMITTING,
    (InstanceState.ANNOUNCED, InstanceTransition.RELEASE): InstanceState.RELEASED,
    (InstanceState.DELAYED, InstanceTransition.RELEASE): InstanceState.RELEASED,
    (InstanceState.COMMITTING, InstanceTransition.RELEASE): InstanceState.RELEASED,
    (InstanceState.REVOKE_REQUESTED, InstanceTransition.WITHDRAW): InstanceState.ACTIVE,
    (InstanceState.DELAYED, InstanceTransition.WITHDRAW): InstanceState.ACTIVE,
    (InstanceState.ANNOUNCED, InstanceTransition.WITHDRAW): InstanceState.ACTIVE,
    (InstanceState.COMMITTING, InstanceTransition.WITHDRAW): InstanceState.ACTIVE,
    (InstanceState.INIT, InstanceTransition.LOSE): InstanceState.LOST,
    (InstanceState.ACTIVE, InstanceTransition.LOSE): InstanceState.LOST,
    **{(state, InstanceTransition.LOSE): InstanceState.LOST for state in _OWNED_REVOKING},
}

REVOKING = frozenset(_OWNED_REVOKING)
TERMINAL = frozenset((InstanceState.RELEASED, InstanceState.LOST))


class PartitionInstance:
    """One assignment of ``partition``. ``instance_id`` grows with every assignment.

    ``committed_offset`` and ``committed_map`` are what the broker is known to hold, None if
    unknown. ``map_unverified``: the map was not compared with the log yet. ``too_far_ahead``: so
    much is done beyond an incomplete record that delivery waits for it.
    """

    def __init__(self, partition: TopicPartition, instance_id: int) -> None:
        self.partition = partition
        self.instance_id = instance_id
        self.state = InstanceState.INIT
        # Both are None until the position is known.
        self.tracker: OffsetTracker | None = None
        self.buffer: RecordBuffer | None = None
        # Of positions before a seek or a truncation. They move no commit point, but their records
        # in flight delay the release.
        self.former_trackers: dict[int, OffsetTracker | TruncatedTracker] = {}
        self.committed_offset: int | None = None
        self.committed_map = ""
        self.map_unverified = False
        self.too_far_ahead = False
        # A position from the reset policy or a seek is committed even if no record was completed.
        self.commit_required = False
        self.paused = False
        # Nothing is fetched from this offset on.
        self.fetch_end: int | None = None
        # Its start waits for the user's code: for the listener, or for a lifespan.
        self.listener_pending = False
        self.lifespan = LifespanState.NONE
        self.is_started = True
        # A seek to a timestamp waits for its offset.
        self.seek_pending = False
        self.delayed_by_user = False
        self.deadline: float | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        # The end that the isolation level allows to be read: one of these two.
        self.readable_end = -1
        self.log_start = -1

    def transition(self, transition: InstanceTransition) -> None:
        """Take a transition of the table; KeyError if the state does not have it."""
        self.state = TRANSITIONS[self.state, transition]

    def read_with(self, tracker: OffsetTracker) -> None:
        """Set a position, without a completion map to verify."""
        self.tracker = tracker
        self.map_unverified = False

    def set_buffer(self, buffer: RecordBuffer | None) -> None:
        """Set where fetched records go; None when the instance has ended."""
        self.buffer = buffer

    def set_map_unverified(self, unverified: bool) -> None:
        """Whether its completion map is still to be compared with the log."""
        self.map_unverified = unverified

    def set_committed(self, offset: int | None, metadata: str) -> None:
        """Set what the broker is known to hold; None if that is unknown."""
        self.committed_offset = offset
        self.committed_map = metadata

    def require_commit(self) -> None:
        """Commit the position even if no record was completed."""
        self.commit_required = True

    def commit_acknowledged(self, offset: int, metadata: str) -> None:
        """The broker has stored this commit."""
        self.set_committed(offset, metadata)
        self.commit_required = False

    def set_log(
        self, log_start: int, last_stable_offset: int, high_watermark: int, *, read_committed: bool
    ) -> None:
        """The start and the end of the log, from a fetch response."""
        self.log_start = log_start
        self.last_stable_offset = last_stable_offset
        self.high_watermark = high_watermark
        self.readable_end = last_stable_offset if read_committed else high_watermark

    def lag(self, position: int) -> int | None:
        """Offsets between ``position`` and the end that could be read at the last fetch: the last
        stable offset with ``read_committed``, otherwise the high watermark. None before a
        fetch."""
        return None if self.readable_end < 0 else max(0, self.readable_end - position)

    def set_paused(self, paused: bool) -> None:
        """Whether the user has paused it."""
        self.paused = paused

    def set_fetch_end(self, offset: int) -> None:
        """Fetch nothing from this offset on; batches that begin before it are fetched whole."""
        self.fetch_end = offset

    def set_listener_pending(self, pending: bool) -> None:
        """Whether delivery waits for the listener's ``on_partitions_assigned``."""
        self.listener_pending = pending
        self._check_started()

    def set_lifespan(self, state: LifespanState) -> None:
        """Where its lifespan is."""
        self.lifespan = state
        self._check_started()

    def _check_started(self) -> None:
        self.is_started = self.lifespan in _DELIVERED and not self.listener_pending

    def set_seek_pending(self, pending: bool) -> None:
        """Whether a seek to a timestamp waits for its offset."""
        self.seek_pending = pending

    def set_too_far_ahead(self, ahead: bool) -> None:
        """Whether delivery waits for an incomplete record; see the class."""
        self.too_far_ahead = ahead

    def set_deadline(self, deadline: float | None) -> None:
        """By when it must be released, None without a limit."""
        self.deadline = deadline

    def set_delayed_by_user(self, delayed: bool) -> None:
        """Whether the user has delayed its revocation until the next poll."""
        self.delayed_by_user = delayed

    @property
    def can(self) -> Permissions:
        """What the state permits."""
        return PERMISSIONS[self.state]

    @property
    def is_blocked(self) -> bool:
        """Whether delivery and fetching pause, whatever the state."""
        return self.paused or self.too_far_ahead or self.seek_pending or not self.is_started

    @property
    def has_unfinished_lifespan(self) -> bool:
        """Whether it has a lifespan that has not exited."""
        return self.lifespan in _UNFINISHED

    @property
    def is_commit_withheld(self) -> bool:
        """Whether its lifespan has to exit before it is committed, for the last time."""
        return self.has_unfinished_lifespan and self.revoking

    @property
    def revoking(self) -> bool:
        """Whether the group has revoked it, and it is not released."""
        return self.state in REVOKING

    @property
    def terminal(self) -> bool:
        """Whether it is released or lost."""
        return self.state in TERMINAL

    @property
    def delivered_to(self) -> int:
        """The offset up to which the log was delivered, also while records are read again."""
        positions = (kept.position for kept in (self.tracker, self.buffer) if kept is not None)
        return max(positions, default=0)

    @property
    def in_flight(self) -> int:
        """Records delivered and not done, those from before a seek included."""
        current = self.tracker.in_flight if self.tracker is not None else 0
        return current + sum(tracker.in_flight for tracker in self.former_trackers.values())

    @property
    def oldest_in_flight(self) -> int | None:
        """The lowest offset in flight, None without one."""
        trackers = [
            *self.former_trackers.values(),
            *([] if self.tracker is None else [self.tracker]),
        ]
        offsets = [tracker.oldest_in_flight for tracker in trackers]
        return min((offset for offset in offsets if offset is not None), default=None)

    @property
    def held(self) -> int:
        """Records that a task or a handler runs."""
        current = self.tracker.held if self.tracker is not None else 0
        return current + sum(tracker.held for tracker in self.former_trackers.values())

    def keep_former_tracker(
        self, tracker_id: int, tracker: OffsetTracker | TruncatedTracker
    ) -> None:
        """Its records in flight delay the release from now on, and move no commit point."""
        self.former_trackers[tracker_id] = tracker

    def drop_former_tracker(self, tracker_id: int) -> None:
        """None of its records is in flight."""
        del self.former_trackers[tracker_id]

    def __repr__(self) -> str:
        return f"<{self.partition} #{self.instance_id} {self.state.value}>"
