"""The states of a classic group member and all transitions, as one table."""

from __future__ import annotations

import enum


class ClassicState(enum.Enum):
    """The state of a member. REVOKING is stable at the broker; the next join waits until partitions
    are released."""

    UNJOINED = "unjoined"
    AWAIT_ID = "waiting for a member id"
    AWAIT_JOIN = "joining"
    AWAIT_SYNC = "syncing"
    STABLE = "stable"
    REVOKING = "draining"
    LEAVING = "leaving"
    FATAL = "failed"


class ClassicTransition(enum.Enum):
    """Why a member changes its state."""

    ASK_ID = "JoinGroup without a member id sent"
    JOIN = "JoinGroup with the member id sent"
    JOINED = "the response to JoinGroup has a generation"
    SYNCED = "the response to SyncGroup has an assignment"
    REVOKE = "partitions must be released before the next join"
    EVICTED = "the coordinator does not know the membership any more"
    LEAVE = "LeaveGroup sent"
    LEFT = "LeaveGroup got a response, or there was nothing to leave"
    FAIL = "a permanent error"


_MEMBER = (
    ClassicState.AWAIT_ID,
    ClassicState.AWAIT_JOIN,
    ClassicState.AWAIT_SYNC,
    ClassicState.STABLE,
    ClassicState.REVOKING,
)

CLASSIC_TRANSITIONS: dict[tuple[ClassicState, ClassicTransition], ClassicState] = {
    (ClassicState.UNJOINED, ClassicTransition.ASK_ID): ClassicState.AWAIT_ID,
    (ClassicState.UNJOINED, ClassicTransition.JOIN): ClassicState.AWAIT_JOIN,
    (ClassicState.UNJOINED, ClassicTransition.EVICTED): ClassicState.UNJOINED,
    (ClassicState.AWAIT_ID, ClassicTransition.JOIN): ClassicState.AWAIT_JOIN,
    (ClassicState.AWAIT_ID, ClassicTransition.JOINED): ClassicState.AWAIT_SYNC,
    (ClassicState.AWAIT_JOIN, ClassicTransition.JOINED): ClassicState.AWAIT_SYNC,
    (ClassicState.AWAIT_SYNC, ClassicTransition.SYNCED): ClassicState.STABLE,
    (ClassicState.AWAIT_SYNC, ClassicTransition.JOIN): ClassicState.AWAIT_JOIN,
    (
        ClassicState.AWAIT_SYNC,
        ClassicTransition.REVOKE,
    ): ClassicState.REVOKING,  # leaving: there will be no other join
    (ClassicState.STABLE, ClassicTransition.REVOKE): ClassicState.REVOKING,
    (ClassicState.STABLE, ClassicTransition.JOIN): ClassicState.AWAIT_JOIN,
    (ClassicState.REVOKING, ClassicTransition.REVOKE): ClassicState.REVOKING,
    (ClassicState.REVOKING, ClassicTransition.JOIN): ClassicState.AWAIT_JOIN,
    (ClassicState.UNJOINED, ClassicTransition.LEAVE): ClassicState.LEAVING,
    (ClassicState.UNJOINED, ClassicTransition.LEFT): ClassicState.UNJOINED,
    (ClassicState.LEAVING, ClassicTransition.LEFT): ClassicState.UNJOINED,
    (ClassicState.UNJOINED, ClassicTransition.FAIL): ClassicState.FATAL,
    (ClassicState.LEAVING, ClassicTransition.FAIL): ClassicState.FATAL,
    (ClassicState.FATAL, ClassicTransition.FAIL): ClassicState.FATAL,
    (ClassicState.FATAL, ClassicTransition.LEFT): ClassicState.FATAL,
    **{(phase, ClassicTransition.EVICTED): ClassicState.UNJOINED for phase in _MEMBER},
    **{(phase, ClassicTransition.LEAVE): ClassicState.LEAVING for phase in _MEMBER},
    **{(phase, ClassicTransition.LEFT): ClassicState.UNJOINED for phase in _MEMBER},
    **{(phase, ClassicTransition.FAIL): ClassicState.FATAL for phase in _MEMBER},
}
