"""The phases of a member of a consumer group (KIP-848), and every move between them, as one table.

Fencing has no phase of its own: everything is lost and the member joins again in the same instant.
Nor has the pause of a loop that asks for nothing: the member has left, and joins when it is asked.
"""

from __future__ import annotations

import enum


class MemberState(enum.Enum):
    """Where a member is. RECONCILING holds what the group wants back, and says so by saying
    nothing of what it owns; ACKNOWLEDGING has released it, and the group does not know yet."""

    UNSUBSCRIBED = "unjoined"
    JOINING = "joining"
    RECONCILING = "draining"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    LEAVING = "leaving"
    FATAL = "failed"


class MemberTransition(enum.Enum):
    """Why a member changes its phase."""

    JOIN = "there is something to read: a full heartbeat with epoch 0"
    RECONCILE = "an assignment came, or everything is to be given up"
    REVOCATION_COMPLETE = "nothing of ours is between being requested and being released or lost"
    ACKNOWLEDGED = "the coordinator has answered a heartbeat that says what we own"
    FENCED = "the coordinator does not know this member, or not with this epoch"
    LEAVE = "a heartbeat with epoch -1 or -2 is due"
    LEFT = "it was answered, or there was nothing to leave"
    FAIL = "the group refuses us for good"


_JOINED = (MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE)
_MEMBER = (MemberState.JOINING, *_JOINED)

MEMBER_TRANSITIONS: dict[tuple[MemberState, MemberTransition], MemberState] = {
    (MemberState.UNSUBSCRIBED, MemberTransition.JOIN): MemberState.JOINING,
    (MemberState.JOINING, MemberTransition.RECONCILE): MemberState.RECONCILING,
    (MemberState.STABLE, MemberTransition.RECONCILE): MemberState.RECONCILING,
    (MemberState.ACKNOWLEDGING, MemberTransition.RECONCILE): MemberState.RECONCILING,
    (MemberState.RECONCILING, MemberTransition.RECONCILE): MemberState.RECONCILING,
    (MemberState.RECONCILING, MemberTransition.REVOCATION_COMPLETE): MemberState.ACKNOWLEDGING,
    (MemberState.ACKNOWLEDGING, MemberTransition.ACKNOWLEDGED): MemberState.STABLE,
    **{(phase, MemberTransition.FENCED): MemberState.UNSUBSCRIBED for phase in _MEMBER},
    (MemberState.LEAVING, MemberTransition.FENCED): MemberState.UNSUBSCRIBED,
    **{(phase, MemberTransition.LEAVE): MemberState.LEAVING for phase in _MEMBER},
    (MemberState.UNSUBSCRIBED, MemberTransition.LEFT): MemberState.UNSUBSCRIBED,
    (MemberState.LEAVING, MemberTransition.LEFT): MemberState.UNSUBSCRIBED,
    (MemberState.FATAL, MemberTransition.LEFT): MemberState.FATAL,
    **{(phase, MemberTransition.FAIL): MemberState.FATAL for phase in MemberState},
}
