"""What each error in a response to ShareFetch or ShareAcknowledge means: of the whole response, of
one partition, and of the acknowledgements of one partition."""

from __future__ import annotations

import enum

from asyncrevoke.client.protocol.messages import ErrorCode


class SessionErrorAction(enum.Enum):
    """What follows from an error of the whole response."""

    OPEN_AGAIN = "open the session again; acknowledgements are sent again in it"
    OPEN_LATER = "likewise, after a backoff"
    REFUSED = "the epoch is unchanged, and no acknowledgement was applied"
    FAIL = "no request can succeed"


SESSION_ERRORS: dict[ErrorCode, SessionErrorAction] = {
    ErrorCode.share_session_not_found: SessionErrorAction.OPEN_AGAIN,
    ErrorCode.invalid_share_session_epoch: SessionErrorAction.OPEN_AGAIN,
    # The epoch has advanced, and records of other partitions may have been acquired: they are
    # delivered again when their locks have passed.
    ErrorCode.unknown_server_error: SessionErrorAction.OPEN_LATER,
    ErrorCode.share_session_limit_reached: SessionErrorAction.OPEN_LATER,
    ErrorCode.invalid_request: SessionErrorAction.REFUSED,
    ErrorCode.group_authorization_failed: SessionErrorAction.FAIL,
    ErrorCode.unsupported_version: SessionErrorAction.FAIL,
}


def session_error_action(error: ErrorCode) -> SessionErrorAction:
    """What to do after this error of a whole response."""
    return SESSION_ERRORS.get(error, SessionErrorAction.OPEN_LATER)


class PartitionErrorAction(enum.Enum):
    """What follows from an error of one partition."""

    LEADER_MOVED = "its locks are lost; request metadata, and fetch from the new leader"
    NO_ACCESS = "tell the application, and fetch it again later"
    RETRY = "fetch it again after a backoff"


PARTITION_ERRORS: dict[ErrorCode, PartitionErrorAction] = {
    ErrorCode.not_leader_or_follower: PartitionErrorAction.LEADER_MOVED,
    ErrorCode.unknown_topic_or_partition: PartitionErrorAction.LEADER_MOVED,
    ErrorCode.unknown_topic_id: PartitionErrorAction.LEADER_MOVED,
    ErrorCode.inconsistent_topic_id: PartitionErrorAction.LEADER_MOVED,
    ErrorCode.fenced_leader_epoch: PartitionErrorAction.LEADER_MOVED,
    ErrorCode.topic_authorization_failed: PartitionErrorAction.NO_ACCESS,
    # The group has no start offset there yet.
    ErrorCode.offset_not_available: PartitionErrorAction.RETRY,
    # The group has not initialized it.
    ErrorCode.unknown_server_error: PartitionErrorAction.RETRY,
    ErrorCode.corrupt_message: PartitionErrorAction.RETRY,
    ErrorCode.kafka_storage_error: PartitionErrorAction.RETRY,
}


def partition_error_action(error: ErrorCode) -> PartitionErrorAction:
    """What to do after this error of a partition."""
    return PARTITION_ERRORS.get(error, PartitionErrorAction.RETRY)


class AcknowledgeErrorAction(enum.Enum):
    """What follows from an error of the acknowledgements of a partition. None was applied."""

    SPLIT = "one offset is not acquired any more: send each range alone"
    LEADER_MOVED = "all locks of the partition are lost"
    LOSE = "the outcome is unknown"


ACKNOWLEDGE_ERRORS: dict[ErrorCode, AcknowledgeErrorAction] = {
    ErrorCode.invalid_record_state: AcknowledgeErrorAction.SPLIT,
    ErrorCode.invalid_request: AcknowledgeErrorAction.SPLIT,
    ErrorCode.not_leader_or_follower: AcknowledgeErrorAction.LEADER_MOVED,
    ErrorCode.unknown_topic_or_partition: AcknowledgeErrorAction.LEADER_MOVED,
    ErrorCode.unknown_topic_id: AcknowledgeErrorAction.LEADER_MOVED,
    ErrorCode.inconsistent_topic_id: AcknowledgeErrorAction.LEADER_MOVED,
    ErrorCode.fenced_leader_epoch: AcknowledgeErrorAction.LEADER_MOVED,
}


def acknowledge_error_action(error: ErrorCode) -> AcknowledgeErrorAction:
    """What to do after this error of acknowledgements."""
    return ACKNOWLEDGE_ERRORS.get(error, AcknowledgeErrorAction.LOSE)
