"""What each error in an OffsetCommit response means: a row is an error of one partition, and what
follows for its commit. ``Committer`` reads the table for each partition of a response."""

from __future__ import annotations

import enum

from asyncrevoke.client.protocol.messages import ErrorCode


class CommitErrorAction(enum.Enum):
    """What the error for one partition means."""

    OK = "acknowledged"
    RETRY = "again after a backoff"
    UNKNOWN_TOPIC = "again after a backoff, unless the metadata say that the topic is gone"
    COORDINATOR = "the coordinator has moved: find it, again"
    AMBIGUOUS = "it may or may not have been processed: find the coordinator, again, verify"
    REBALANCE = "the group rebalances: again after the sync, or with the new epoch"
    MEMBERSHIP = (
        "the identity sent is not valid: rejoin if it is still the member's, else commit again"
    )
    FENCED = "another member has this instance id"
    TOO_LARGE = "the metadata is too large: again with less"
    REJECTED = "this partition cannot be committed"
    FATAL = "no commit can succeed"


COMMIT_ERRORS: dict[ErrorCode, CommitErrorAction] = {
    ErrorCode.none: CommitErrorAction.OK,
    ErrorCode.coordinator_load_in_progress: CommitErrorAction.RETRY,
    ErrorCode.unknown_topic_or_partition: CommitErrorAction.UNKNOWN_TOPIC,
    # The topic was deleted, or the coordinator does not know it yet.
    ErrorCode.unknown_topic_id: CommitErrorAction.UNKNOWN_TOPIC,
    ErrorCode.throttling_quota_exceeded: CommitErrorAction.RETRY,
    ErrorCode.unstable_offset_commit: CommitErrorAction.RETRY,
    ErrorCode.coordinator_not_available: CommitErrorAction.COORDINATOR,
    ErrorCode.not_coordinator: CommitErrorAction.COORDINATOR,
    ErrorCode.request_timed_out: CommitErrorAction.AMBIGUOUS,
    ErrorCode.network_exception: CommitErrorAction.AMBIGUOUS,
    ErrorCode.unknown_server_error: CommitErrorAction.AMBIGUOUS,
    ErrorCode.rebalance_in_progress: CommitErrorAction.REBALANCE,
    # KIP-848: the member epoch has changed, and the response with the new one is under way or lost.
    ErrorCode.stale_member_epoch: CommitErrorAction.REBALANCE,
    ErrorCode.illegal_generation: CommitErrorAction.MEMBERSHIP,
    ErrorCode.unknown_member_id: CommitErrorAction.MEMBERSHIP,
    # The whole group is gone.
    ErrorCode.group_id_not_found: CommitErrorAction.MEMBERSHIP,
    ErrorCode.fenced_instance_id: CommitErrorAction.FENCED,
    ErrorCode.offset_metadata_too_large: CommitErrorAction.TOO_LARGE,
    ErrorCode.invalid_commit_offset_size: CommitErrorAction.TOO_LARGE,
    ErrorCode.topic_authorization_failed: CommitErrorAction.REJECTED,
    ErrorCode.group_authorization_failed: CommitErrorAction.FATAL,
    ErrorCode.unsupported_version: CommitErrorAction.FATAL,
}
