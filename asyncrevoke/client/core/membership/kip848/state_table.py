"""The states of a consumer group member (KIP-848) and all transitions, as one table.

A fenced member loses everything and joins again at once. A member whose loop exceeds
``max_poll_interval`` has left, and joins when the loop asks for a batch.
"""

from __future__ import annotations

import enum


class MemberState(enum.Enum):
    """The state of a member. RECONCILING drains revoked partitions, and heartbeats omit what it
    owns; ACKNOWLEDGING has released them, and the group does not know yet."""

    UNSUBSCRIBED = "unjoined"
    JOINING = "joining"
    RECONCILING = "draining"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    LEAVING = "leaving"
    FATAL = "failed"


class MemberTransition(enum.Enum):
    """Why a member changes its state."""

    JOIN = "there is something to read: a full heartbeat with epoch 0"
    RECONCILE = "an assignment came, or everything is to be released"
    REVOCATION_COMPLETE = "no instance is being revoked"
    ACKNOWLEDGED = "the coordinator has responded to a heartbeat with all that is owned"
    FENCED = "the coordinator does not know this member, or not with this epoch"
    LEAVE = "a heartbeat with epoch -1 or -2 is due"
    LEFT = "it got a response, or there was nothing to leave"
    FAIL = "a permanent error"


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
