"""The phases of a member of a consumer group (KIP-848), and every move between them, as one table.

Fencing has no phase of its own: everything is lost and the member joins again in the same instant.
Nor has the pause of a loop that asks for nothing: the member has left, and joins when it is asked.
"""

from __future__ import annotations

import enum


class EpochPhase(enum.Enum):
    """Where a member is. RECONCILING holds what the group wants back, and says so by saying
    nothing of what it owns; ACKNOWLEDGING has released it, and the group does not know yet."""

    UNSUBSCRIBED = "unjoined"
    JOINING = "joining"
    RECONCILING = "draining"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    LEAVING = "leaving"
    FATAL = "failed"


class EpochMove(enum.Enum):
    """Why a member changes its phase."""

    JOIN = "there is something to read: a full heartbeat with epoch 0"
    RECONCILE = "an assignment came, or everything is to be given up"
    MET = "nothing of ours is between being requested and being released or lost"
    ACKNOWLEDGED = "the coordinator has answered a heartbeat that says what we own"
    FENCED = "the coordinator does not know this member, or not with this epoch"
    LEAVE = "a heartbeat with epoch -1 or -2 is due"
    LEFT = "it was answered, or there was nothing to leave"
    FAIL = "the group refuses us for good"


_JOINED = (EpochPhase.RECONCILING, EpochPhase.ACKNOWLEDGING, EpochPhase.STABLE)
_MEMBER = (EpochPhase.JOINING, *_JOINED)

EPOCH_MOVES: dict[tuple[EpochPhase, EpochMove], EpochPhase] = {
    (EpochPhase.UNSUBSCRIBED, EpochMove.JOIN): EpochPhase.JOINING,
    (EpochPhase.JOINING, EpochMove.RECONCILE): EpochPhase.RECONCILING,
    (EpochPhase.STABLE, EpochMove.RECONCILE): EpochPhase.RECONCILING,
    (EpochPhase.ACKNOWLEDGING, EpochMove.RECONCILE): EpochPhase.RECONCILING,
    (EpochPhase.RECONCILING, EpochMove.RECONCILE): EpochPhase.RECONCILING,
    (EpochPhase.RECONCILING, EpochMove.MET): EpochPhase.ACKNOWLEDGING,
    (EpochPhase.ACKNOWLEDGING, EpochMove.ACKNOWLEDGED): EpochPhase.STABLE,
    **{(phase, EpochMove.FENCED): EpochPhase.UNSUBSCRIBED for phase in _MEMBER},
    (EpochPhase.LEAVING, EpochMove.FENCED): EpochPhase.UNSUBSCRIBED,
    **{(phase, EpochMove.LEAVE): EpochPhase.LEAVING for phase in _MEMBER},
    (EpochPhase.UNSUBSCRIBED, EpochMove.LEFT): EpochPhase.UNSUBSCRIBED,
    (EpochPhase.LEAVING, EpochMove.LEFT): EpochPhase.UNSUBSCRIBED,
    (EpochPhase.FATAL, EpochMove.LEFT): EpochPhase.FATAL,
    **{(phase, EpochMove.FAIL): EpochPhase.FATAL for phase in EpochPhase},
}
