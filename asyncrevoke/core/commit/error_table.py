"""What each error in an answer to OffsetCommit means, as one table."""

from __future__ import annotations

import enum

from asyncrevoke.protocol.messages import ErrorCode


class Verdict(enum.Enum):
    """What the answer for one partition means."""

    OK = "acknowledged"
    RETRY = "again after a backoff"
    UNKNOWN_TOPIC = "again after a backoff, unless the metadata say that the topic is gone"
    COORDINATOR = "the coordinator has moved: find it, again"
    AMBIGUOUS = "it may or may not have been processed: find the coordinator, again, verify"
    REBALANCE = "the group rebalances: again after the sync, or with the new epoch"
    MEMBERSHIP = "the membership sent is not valid: a verdict, or stale"
    FENCED = "another member has our instance id"
    TOO_LARGE = "the metadata is too large: again with less"
    REFUSED = "this partition cannot be committed"
    FATAL = "no commit can succeed"


VERDICTS: dict[ErrorCode, Verdict] = {
    ErrorCode.none: Verdict.OK,
    ErrorCode.coordinator_load_in_progress: Verdict.RETRY,
    ErrorCode.unknown_topic_or_partition: Verdict.UNKNOWN_TOPIC,
    # No topic has this id: it was deleted, or the coordinator has not heard of it yet.
    ErrorCode.unknown_topic_id: Verdict.UNKNOWN_TOPIC,
    ErrorCode.throttling_quota_exceeded: Verdict.RETRY,
    ErrorCode.unstable_offset_commit: Verdict.RETRY,
    ErrorCode.coordinator_not_available: Verdict.COORDINATOR,
    ErrorCode.not_coordinator: Verdict.COORDINATOR,
    ErrorCode.request_timed_out: Verdict.AMBIGUOUS,
    ErrorCode.network_exception: Verdict.AMBIGUOUS,
    ErrorCode.unknown_server_error: Verdict.AMBIGUOUS,
    ErrorCode.rebalance_in_progress: Verdict.REBALANCE,
    # KIP-848: our epoch has moved on, and the answer that says so is on its way or lost.
    ErrorCode.stale_member_epoch: Verdict.REBALANCE,
    ErrorCode.illegal_generation: Verdict.MEMBERSHIP,
    ErrorCode.unknown_member_id: Verdict.MEMBERSHIP,
    # The group as a whole is gone, and we with it.
    ErrorCode.group_id_not_found: Verdict.MEMBERSHIP,
    ErrorCode.fenced_instance_id: Verdict.FENCED,
    ErrorCode.offset_metadata_too_large: Verdict.TOO_LARGE,
    ErrorCode.invalid_commit_offset_size: Verdict.TOO_LARGE,
    ErrorCode.topic_authorization_failed: Verdict.REFUSED,
    ErrorCode.group_authorization_failed: Verdict.FATAL,
    ErrorCode.unsupported_version: Verdict.FATAL,
}
