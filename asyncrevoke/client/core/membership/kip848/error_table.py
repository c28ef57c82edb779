"""What each error in a response to ConsumerGroupHeartbeat means: a row is an error, and what the
member does after it. ``ConsumerGroupMembership`` reads the table by :func:`heartbeat_action`."""

from __future__ import annotations

import enum

from asyncrevoke.client.protocol.messages import ErrorCode


class HeartbeatErrorAction(enum.Enum):
    """What the member does. The last three wait for what their values say, and retry; the log
    shows these values as ``waiting_for``."""

    REJOIN = "the coordinator has removed the member, or knows it by another epoch: join again"
    USE_CLASSIC = "the brokers do not offer the protocol: use the classic one, if that is allowed"
    FAIL = "no heartbeat can succeed"
    WAIT_FOR_INSTANCE_ID = "the instance id to be released"
    WAIT_FOR_ACCESS = "access to a topic"
    WAIT_FOR_COORDINATOR = "the coordinator"


HEARTBEAT_ERRORS: dict[ErrorCode, HeartbeatErrorAction] = {
    ErrorCode.unknown_member_id: HeartbeatErrorAction.REJOIN,
    ErrorCode.fenced_member_epoch: HeartbeatErrorAction.REJOIN,
    ErrorCode.unsupported_version: HeartbeatErrorAction.USE_CLASSIC,
    # An earlier membership of this consumer may have it, if its responses were lost.
    ErrorCode.unreleased_instance_id: HeartbeatErrorAction.WAIT_FOR_INSTANCE_ID,
    ErrorCode.topic_authorization_failed: HeartbeatErrorAction.WAIT_FOR_ACCESS,
    ErrorCode.unknown_server_error: HeartbeatErrorAction.WAIT_FOR_COORDINATOR,
}


def heartbeat_action(
    error: ErrorCode, *, joining: bool, has_fallback: bool
) -> HeartbeatErrorAction:
    """What to do after this error. Errors that are not in the table are retried if Kafka calls them
    retriable. After GROUP_ID_NOT_FOUND, a member's group is gone; one that joins finds a classic
    group, which the brokers do not convert."""
    if error is ErrorCode.group_id_not_found:
        if not joining:
            return HeartbeatErrorAction.REJOIN
        if has_fallback:
            return HeartbeatErrorAction.USE_CLASSIC
    if error.retriable:
        return HEARTBEAT_ERRORS.get(error, HeartbeatErrorAction.WAIT_FOR_COORDINATOR)
    return HEARTBEAT_ERRORS.get(error, HeartbeatErrorAction.FAIL)
