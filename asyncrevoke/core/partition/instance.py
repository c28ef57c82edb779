"""One assignment of one partition, from being assigned to being released or lost.

Theory of operation. Each assignment of a partition makes a new *instance* with an id of its own.
The group asks for a partition back by requesting its revoke: the instance stops fetching and
delivering, yet stays ours. It is announced by a poll result, and only a later poll may complete
it (KIP-983: completion needs announcement). It completes when nothing of it is in flight and the
commit that covers what was done is acknowledged: then it is RELEASED, and only then may the group
learn of it. An instance that the group has taken away, or that misses its deadline, is LOST. Both
ends are final: neither commits ever again, and the same partition assigned anew is a new instance.

``TRANSITIONS`` is the whole of it; a pair that is not listed is a bug and raises.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncrevoke.core.partition.offset_tracker import Ledger
    from asyncrevoke.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.core.partition.truncated_ledger import TruncatedLedger
    from asyncrevoke.model import TopicPartition


class State(enum.Enum):
    """Where an instance is in its life."""

    INIT = "init"
    ACTIVE = "active"
    RV_REQUESTED = "revoke requested"
    RV_NEXT = "announced"
    RV_LATER = "delayed"
    RV_FLUSH = "flushing"
    RELEASED = "released"
    LOST = "lost"


class Can(NamedTuple):
    """What an instance may do in a state."""

    fetch: bool
    deliver: bool
    commit: bool
    owned: bool


CAN: dict[State, Can] = {
    #                        fetch  deliver commit owned
    # An offset that the user asks to commit.
    State.INIT: Can(False, False, True, True),
    State.ACTIVE: Can(True, True, True, True),
    State.RV_REQUESTED: Can(False, False, True, True),
    State.RV_NEXT: Can(False, False, True, True),
    State.RV_LATER: Can(False, False, True, True),
    State.RV_FLUSH: Can(False, False, True, True),
    State.RELEASED: Can(False, False, False, False),
    State.LOST: Can(False, False, False, False),
}


class Step(enum.Enum):
    """What may happen to an instance."""

    POSITIONED = "position found"
    REVOKE = "revoke requested"
    ANNOUNCE = "poll returned it in to_be_revoked"
    DELAY = "delay_revoke, or work in flight at the start of a poll"
    AGAIN = "poll started while still delayed"
    FLUSH = "drained, final commit owed"
    RELEASE = "drained and everything acknowledged"
    WITHDRAW = "assigned again before it was released"
    LOSE = "taken away, or overdue"


_OWNED_REVOKING = (State.RV_REQUESTED, State.RV_NEXT, State.RV_LATER, State.RV_FLUSH)

TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.INIT, Step.POSITIONED): State.ACTIVE,
    (State.INIT, Step.REVOKE): State.RELEASED,
    (State.INIT, Step.FLUSH): State.RV_FLUSH,
    (State.ACTIVE, Step.REVOKE): State.RV_REQUESTED,
    (State.RV_REQUESTED, Step.ANNOUNCE): State.RV_NEXT,
    (State.RV_NEXT, Step.ANNOUNCE): State.RV_NEXT,
    (State.RV_NEXT, Step.DELAY): State.RV_LATER,
    (State.RV_LATER, Step.DELAY): State.RV_LATER,
    (State.RV_LATER, Step.AGAIN): State.RV_NEXT,
    (State.RV_NEXT, Step.FLUSH): State.RV_FLUSH,
    (State.RV_LATER, Step.FLUSH): State.RV_FLUSH,
    (State.RV_NEXT, Step.RELEASE): State.RELEASED,
    (State.RV_LATER, Step.RELEASE): State.RELEASED,
    (State.RV_FLUSH, Step.RELEASE): State.RELEASED,
    (State.RV_REQUESTED, Step.WITHDRAW): State.ACTIVE,
    (State.RV_LATER, Step.WITHDRAW): State.ACTIVE,
    (State.RV_NEXT, Step.WITHDRAW): State.ACTIVE,
    (State.RV_FLUSH, Step.WITHDRAW): State.ACTIVE,
    (State.INIT, Step.LOSE): State.LOST,
    (State.ACTIVE, Step.LOSE): State.LOST,
    **{(state, Step.LOSE): State.LOST for state in _OWNED_REVOKING},
}

REVOKING = frozenset(_OWNED_REVOKING)
TERMINAL = frozenset((State.RELEASED, State.LOST))


class PartitionInstance:
    """One assignment of ``partition``. ``instance_id`` grows with every assignment.

    ``acked`` is the offset that the broker is known to hold as committed, None if it holds none,
    and ``acked_map`` the completion map beside it. ``unchecked``: the map that was found there has
    not been compared with the log yet. ``ahead``: so much is done beyond a record that is not, that
    nothing more is to be delivered.
    """

    __slots__ = (
        "acked",
        "acked_map",
        "ahead",
        "buffer",
        "commit_owed",
        "deadline",
        "delayed_by_hand",
        "high_watermark",
        "instance_id",
        "last_stable_offset",
        "ledger",
        "log_start",
        "old_ledgers",
        "partition",
        "paused",
        "state",
        "unchecked",
    )

    def __init__(self, partition: TopicPartition, instance_id: int) -> None:
        self.partition = partition
        self.instance_id = instance_id
        self.state = State.INIT
        # Both are None until the position is known.
        self.ledger: Ledger | None = None
        self.buffer: RecordBuffer | None = None
        # From before a seek or a truncation of the log: what they count moves no commit point, but
        # the partition is not released before it ends.
        self.old_ledgers: dict[int, Ledger | TruncatedLedger] = {}
        self.acked: int | None = None
        self.acked_map = ""
        self.unchecked = False
        self.ahead = False
        # A position from the reset policy or a seek is to be committed even if nothing was done.
        self.commit_owed = False
        self.paused = False
        self.delayed_by_hand = False
        self.deadline: float | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start = -1

    def step(self, step: Step) -> None:
        """Take one step of the table; KeyError for a step that the state does not have."""
        self.state = TRANSITIONS[self.state, step]

    @property
    def can(self) -> Can:
        """What this instance may do now."""
        return CAN[self.state]

    @property
    def revoking(self) -> bool:
        """Whether a revoke is under way."""
        return self.state in REVOKING

    @property
    def terminal(self) -> bool:
        """Whether it is released or lost."""
        return self.state in TERMINAL

    @property
    def delivered_to(self) -> int:
        """Up to where the log was delivered; the buffer may be behind, while it reads again."""
        positions = (each.position for each in (self.ledger, self.buffer) if each is not None)
        return max(positions, default=0)

    @property
    def in_flight(self) -> int:
        """Records delivered and not done, those from before a seek included."""
        current = self.ledger.in_flight if self.ledger is not None else 0
        return current + sum(ledger.in_flight for ledger in self.old_ledgers.values())

    @property
    def oldest_in_flight(self) -> int | None:
        """The lowest offset of those records, None if there are none."""
        ledgers = [*self.old_ledgers.values(), *([] if self.ledger is None else [self.ledger])]
        offsets = [ledger.oldest_in_flight for ledger in ledgers]
        return min((offset for offset in offsets if offset is not None), default=None)

    @property
    def held(self) -> int:
        """Records that a task or a handler works on."""
        current = self.ledger.held if self.ledger is not None else 0
        return current + sum(ledger.held for ledger in self.old_ledgers.values())

    def __repr__(self) -> str:
        topic, number = self.partition
        return f"<{topic}-{number} #{self.instance_id} {self.state.value}>"
