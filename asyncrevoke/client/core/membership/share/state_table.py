"""The states of a member of a share group (KIP-932) and all transitions, as one table.

No member owns a partition: an assignment replaces the last one at once, and a member that the
coordinator has removed joins again with the same id. What it has acquired stays locked meanwhile.
"""

from __future__ import annotations

import enum


class ShareMemberState(enum.Enum):
    """The state of a member. WAITING has joined, and no partition was assigned to it yet."""

    UNSUBSCRIBED = "unjoined"
    JOINING = "joining"
    WAITING = "waiting"
    STABLE = "stable"
    LEAVING = "leaving"
    FATAL = "failed"


class ShareMemberTransition(enum.Enum):
    """Why a member changes its state."""

    JOIN = "topics are subscribed to: a heartbeat with epoch 0 and the topics"
    JOINED = "the coordinator has given an epoch, and no partition"
    ASSIGNED = "a heartbeat's response has partitions"
    FENCED = "the coordinator does not know this member, or not with this epoch"
    LEAVE = "a heartbeat with epoch -1 is due"
    LEFT = "it got a response, or there was nothing to leave"
    FAIL = "a permanent error"


_JOINED = (ShareMemberState.WAITING, ShareMemberState.STABLE)
_MEMBER = (ShareMemberState.JOINING, *_JOINED)

SHARE_MEMBER_TRANSITIONS: dict[tuple[ShareMemberState, ShareMemberTransition], ShareMemberState] = {
    (ShareMemberState.UNSUBSCRIBED, ShareMemberTransition.JOIN): ShareMemberState.JOINING,
    (ShareMemberState.JOINING, ShareMemberTransition.JOINED): ShareMemberState.WAITING,
    **{(state, ShareMemberTransition.ASSIGNED): ShareMemberState.STABLE for state in _MEMBER},
    **{(state, ShareMemberTransition.FENCED): ShareMemberState.JOINING for state in _MEMBER},
    (ShareMemberState.LEAVING, ShareMemberTransition.FENCED): ShareMemberState.UNSUBSCRIBED,
    **{(state, ShareMemberTransition.LEAVE): ShareMemberState.LEAVING for state in _MEMBER},
    (ShareMemberState.UNSUBSCRIBED, ShareMemberTransition.LEFT): ShareMemberState.UNSUBSCRIBED,
    (ShareMemberState.LEAVING, ShareMemberTransition.LEFT): ShareMemberState.UNSUBSCRIBED,
    (ShareMemberState.FATAL, ShareMemberTransition.LEFT): ShareMemberState.FATAL,
    **{(state, ShareMemberTransition.FAIL): ShareMemberState.FATAL for state in ShareMemberState},
}
