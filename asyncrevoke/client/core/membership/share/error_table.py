"""What each error in a response to ShareGroupHeartbeat means: a row is an error, and what the
member does after it. ``ShareGroupMembership`` reads the table by :func:`share_heartbeat_action`."""

from __future__ import annotations

import enum

from asyncrevoke.client.errors import (
    FatalError,
    GroupAuthorizationError,
    InconsistentGroupError,
    UnsupportedVersionError,
)
from asyncrevoke.client.protocol.messages import ErrorCode


class ShareHeartbeatAction(enum.Enum):
    """What the member does. The last three wait for what their values say, and retry; the log
    shows these values as ``waiting_for``."""

    FIND_COORDINATOR = "another broker coordinates the group: look for it"
    REJOIN = "the coordinator has removed the member, or knows it by another epoch: join again"
    FAIL = "no heartbeat can succeed"
    WAIT_FOR_ROOM = "room in the group (group.share.max.size)"
    WAIT_FOR_ACCESS = "access to a topic"
    WAIT_FOR_COORDINATOR = "the coordinator"


SHARE_HEARTBEAT_ERRORS: dict[ErrorCode, ShareHeartbeatAction] = {
    ErrorCode.not_coordinator: ShareHeartbeatAction.FIND_COORDINATOR,
    ErrorCode.coordinator_not_available: ShareHeartbeatAction.FIND_COORDINATOR,
    ErrorCode.coordinator_load_in_progress: ShareHeartbeatAction.WAIT_FOR_COORDINATOR,
    ErrorCode.unknown_member_id: ShareHeartbeatAction.REJOIN,
    ErrorCode.fenced_member_epoch: ShareHeartbeatAction.REJOIN,
    ErrorCode.group_max_size_reached: ShareHeartbeatAction.WAIT_FOR_ROOM,
    ErrorCode.topic_authorization_failed: ShareHeartbeatAction.WAIT_FOR_ACCESS,
    ErrorCode.unknown_server_error: ShareHeartbeatAction.WAIT_FOR_COORDINATOR,
    # It offers the request also while the feature share.version is 0.
    ErrorCode.unsupported_version: ShareHeartbeatAction.FAIL,
    ErrorCode.group_authorization_failed: ShareHeartbeatAction.FAIL,
    ErrorCode.invalid_request: ShareHeartbeatAction.FAIL,
}


def share_heartbeat_action(error: ErrorCode, *, joining: bool) -> ShareHeartbeatAction:
    """What to do after this error. Errors that are not in the table are retried if Kafka calls them
    retriable. After GROUP_ID_NOT_FOUND, a member's group was deleted; one that joins finds a group
    of another type."""
    if error is ErrorCode.group_id_not_found:
        return ShareHeartbeatAction.FAIL if joining else ShareHeartbeatAction.REJOIN
    if error.retriable:
        return SHARE_HEARTBEAT_ERRORS.get(error, ShareHeartbeatAction.WAIT_FOR_COORDINATOR)
    return SHARE_HEARTBEAT_ERRORS.get(error, ShareHeartbeatAction.FAIL)


def share_group_error(group_id: str, error: ErrorCode, detail: str) -> FatalError:
    """The exception for a permanent error of the coordinator of a share group."""
    group = f"share group {group_id!r}"
    match error:
        case ErrorCode.unsupported_version:
            return UnsupportedVersionError(
                f"{group} cannot be used, because share groups are disabled in the cluster: enable "
                "them with `kafka-features.sh upgrade --feature share.version=1`, which Apache "
                "Kafka 4.2 and later has"
            )
        case ErrorCode.group_id_not_found:
            return InconsistentGroupError(
                f"{group_id!r} is a group of another type, not a share group ({detail}): choose "
                "another group_id, or delete that group"
            )
        case ErrorCode.group_authorization_failed:
            return GroupAuthorizationError(
                f"not authorized to use {group}: grant READ on it, or choose another group_id"
            )
        case _:
            return InconsistentGroupError(f"{group} rejects this member: {error.name} ({detail})")
