"""What each error in a response to JoinGroup, SyncGroup and Heartbeat means: a table for each
request, whose rows are an error and what the member does after it. ``ClassicMembership`` reads
those of JoinGroup and SyncGroup, and ``ClassicHeartbeat`` that of Heartbeat."""

from __future__ import annotations

import enum

from asyncrevoke.client.protocol.messages import ErrorCode


class JoinErrorAction(enum.Enum):
    """What the member does after an error in a response to JoinGroup."""

    USE_MEMBER_ID = "the same JoinGroup with the member id of the response (KIP-394)"
    REJOIN = "the coordinator does not know the member id: join without one"
    FENCED = "another member has this instance id"
    FIND_COORDINATOR = "the same JoinGroup to the coordinator, as soon as it is found"
    WAIT_FOR_LOADING = "the coordinator loads the group: the same JoinGroup after a backoff"
    RETRY = "the same JoinGroup after a backoff"
    FAIL = "no JoinGroup can succeed"


# Other errors: see join_action.
JOIN_ERRORS: dict[ErrorCode, JoinErrorAction] = {
    ErrorCode.member_id_required: JoinErrorAction.USE_MEMBER_ID,
    ErrorCode.unknown_member_id: JoinErrorAction.REJOIN,
    ErrorCode.fenced_instance_id: JoinErrorAction.FENCED,
    ErrorCode.not_coordinator: JoinErrorAction.FIND_COORDINATOR,
    ErrorCode.coordinator_not_available: JoinErrorAction.FIND_COORDINATOR,
    ErrorCode.coordinator_load_in_progress: JoinErrorAction.WAIT_FOR_LOADING,
    ErrorCode.rebalance_in_progress: JoinErrorAction.RETRY,
    # A coordinator responds to all members with this error if one of them has sent what it cannot
    # read: the others are served again when that one is gone.
    ErrorCode.unknown_server_error: JoinErrorAction.RETRY,
}


class SyncErrorAction(enum.Enum):
    """What the member does after an error in a response to SyncGroup."""

    REJOIN = "the coordinator does not know the member id: join without one"
    REJOIN_WITH_ID = "the group has another generation: join with this member id"
    REBALANCE = "the group rebalances: join, with what is assigned now as owned"
    FIND_COORDINATOR = "the JoinGroup of this generation to the coordinator, when it is found"
    WAIT_FOR_LOADING = (
        "the coordinator loads the group: the JoinGroup of this generation after a backoff"
    )
    RETRY = "the JoinGroup of this generation after a backoff"
    FAIL = "no SyncGroup can succeed"


# Other errors are retried by the JoinGroup of this generation, whose response says more.
SYNC_ERRORS: dict[ErrorCode, SyncErrorAction] = {
    ErrorCode.unknown_member_id: SyncErrorAction.REJOIN,
    ErrorCode.illegal_generation: SyncErrorAction.REJOIN_WITH_ID,
    ErrorCode.rebalance_in_progress: SyncErrorAction.REBALANCE,
    ErrorCode.not_coordinator: SyncErrorAction.FIND_COORDINATOR,
    ErrorCode.coordinator_not_available: SyncErrorAction.FIND_COORDINATOR,
    ErrorCode.coordinator_load_in_progress: SyncErrorAction.WAIT_FOR_LOADING,
    ErrorCode.fenced_instance_id: SyncErrorAction.FAIL,
    ErrorCode.inconsistent_group_protocol: SyncErrorAction.FAIL,
    ErrorCode.group_authorization_failed: SyncErrorAction.FAIL,
}


class ClassicHeartbeatAction(enum.Enum):
    """What the response to a Heartbeat means for the member."""

    CONFIRM = "the membership is confirmed"
    REBALANCE = "the group rebalances: the member is to join"
    MEMBERSHIP = "the identity sent is not valid: rejoin if it is still the member's"
    FIND_COORDINATOR = "find the coordinator, and send a heartbeat at once"
    WAIT_FOR_LOADING = "the coordinator loads the group: the next heartbeat at its time"
    IGNORE = "the next heartbeat at its time"
    FAIL = "no heartbeat can succeed"


# Other errors are ignored: the membership lasts for its session timeout.
CLASSIC_HEARTBEAT_ERRORS: dict[ErrorCode, ClassicHeartbeatAction] = {
    ErrorCode.none: ClassicHeartbeatAction.CONFIRM,
    ErrorCode.rebalance_in_progress: ClassicHeartbeatAction.REBALANCE,
    ErrorCode.unknown_member_id: ClassicHeartbeatAction.MEMBERSHIP,
    ErrorCode.illegal_generation: ClassicHeartbeatAction.MEMBERSHIP,
    ErrorCode.fenced_instance_id: ClassicHeartbeatAction.MEMBERSHIP,
    ErrorCode.not_coordinator: ClassicHeartbeatAction.FIND_COORDINATOR,
    ErrorCode.coordinator_not_available: ClassicHeartbeatAction.FIND_COORDINATOR,
    ErrorCode.coordinator_load_in_progress: ClassicHeartbeatAction.WAIT_FOR_LOADING,
    ErrorCode.group_authorization_failed: ClassicHeartbeatAction.FAIL,
}


def join_action(error: ErrorCode, *, is_id_unwritten: bool) -> JoinErrorAction:
    """What to do after this error. Errors that are not in the table are retried if Kafka calls them
    retriable.

    ``is_id_unwritten``: a coordinator gave the member its id, and has moved before the group had an
    assignment. The next one knows the instance id by an earlier member id.
    """
    if error is ErrorCode.fenced_instance_id and is_id_unwritten:
        return JoinErrorAction.REJOIN
    otherwise = JoinErrorAction.RETRY if error.retriable else JoinErrorAction.FAIL
    return JOIN_ERRORS.get(error, otherwise)
