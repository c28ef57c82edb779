"""The phases of a classic group member, and every move between them, as one table."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where a member is. DRAIN is stable at the broker, with a join of ours deferred until the
    partitions that are to go have been released."""

    UNJOINED = "unjoined"
    AWAIT_ID = "waiting for a member id"
    AWAIT_JOIN = "joining"
    AWAIT_SYNC = "syncing"
    STABLE = "stable"
    DRAIN = "draining"
    LEAVING = "leaving"
    FATAL = "failed"


class Move(enum.Enum):
    """Why a member changes its phase."""

    ASK_ID = "JoinGroup without a member id sent"
    JOIN = "JoinGroup with our member id sent"
    JOINED = "JoinGroup answered with a generation"
    SYNCED = "SyncGroup answered with an assignment"
    DRAIN = "partitions must be released before the next join"
    RESET = "the coordinator does not know the membership any more"
    LEAVE = "LeaveGroup sent"
    LEFT = "LeaveGroup answered, or there was nothing to leave"
    FAIL = "the group refuses us for good"


_MEMBER = (Phase.AWAIT_ID, Phase.AWAIT_JOIN, Phase.AWAIT_SYNC, Phase.STABLE, Phase.DRAIN)

MOVES: dict[tuple[Phase, Move], Phase] = {
    (Phase.UNJOINED, Move.ASK_ID): Phase.AWAIT_ID,
    (Phase.UNJOINED, Move.JOIN): Phase.AWAIT_JOIN,
    (Phase.UNJOINED, Move.RESET): Phase.UNJOINED,
    (Phase.AWAIT_ID, Move.JOIN): Phase.AWAIT_JOIN,
    (Phase.AWAIT_ID, Move.JOINED): Phase.AWAIT_SYNC,
    (Phase.AWAIT_JOIN, Move.JOINED): Phase.AWAIT_SYNC,
    (Phase.AWAIT_SYNC, Move.SYNCED): Phase.STABLE,
    (Phase.AWAIT_SYNC, Move.JOIN): Phase.AWAIT_JOIN,
    (Phase.AWAIT_SYNC, Move.DRAIN): Phase.DRAIN,  # leaving: there will be no other join
    (Phase.STABLE, Move.DRAIN): Phase.DRAIN,
    (Phase.STABLE, Move.JOIN): Phase.AWAIT_JOIN,
    (Phase.DRAIN, Move.DRAIN): Phase.DRAIN,
    (Phase.DRAIN, Move.JOIN): Phase.AWAIT_JOIN,
    (Phase.UNJOINED, Move.LEAVE): Phase.LEAVING,
    (Phase.UNJOINED, Move.LEFT): Phase.UNJOINED,
    (Phase.LEAVING, Move.LEFT): Phase.UNJOINED,
    (Phase.UNJOINED, Move.FAIL): Phase.FATAL,
    (Phase.LEAVING, Move.FAIL): Phase.FATAL,
    (Phase.FATAL, Move.FAIL): Phase.FATAL,
    (Phase.FATAL, Move.LEFT): Phase.FATAL,
    **{(phase, Move.RESET): Phase.UNJOINED for phase in _MEMBER},
    **{(phase, Move.LEAVE): Phase.LEAVING for phase in _MEMBER},
    **{(phase, Move.LEFT): Phase.UNJOINED for phase in _MEMBER},
    **{(phase, Move.FAIL): Phase.FATAL for phase in _MEMBER},
}
