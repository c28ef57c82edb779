"""What each error in a Produce response means: a row is an error of one batch, and what the
producer does with the batch. ``ProducerCore`` reads the table by :func:`action_for`; why a batch is
rejected, :func:`rejection` says."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class ProduceAction(enum.Enum):
    """What the producer does with a batch after a response."""

    ACKNOWLEDGED = "acknowledged"  # the batch is written
    RETRY = "retry"  # the batch is not written: send it again
    RETRY_IN_DOUBT = "retry in doubt"  # it may be written: send it again with the same sequence
    REFRESH = "refresh"  # the metadata is old: request the leader, and send the batch again
    NEW_SEQUENCE = "new sequence"  # the broker expects another sequence: begin a new epoch
    # The batch is too large, or a record is invalid: send its halves. One record alone fails, but
    # if it is too large, it is compressed first.
    SPLIT = "split"
    COMPRESS = "compress"
    REJECTED = "rejected"  # the records fail


# Codes that are not listed reject the batch.
PRODUCE_ERRORS: Final[Mapping[ErrorCode, ProduceAction]] = {
    ErrorCode.none: ProduceAction.ACKNOWLEDGED,
    ErrorCode.duplicate_sequence_number: ProduceAction.ACKNOWLEDGED,
    ErrorCode.corrupt_message: ProduceAction.RETRY,
    ErrorCode.not_enough_replicas: ProduceAction.RETRY,
    ErrorCode.throttling_quota_exceeded: ProduceAction.RETRY,
    ErrorCode.broker_not_available: ProduceAction.RETRY,
    ErrorCode.concurrent_transactions: ProduceAction.RETRY,
    ErrorCode.request_timed_out: ProduceAction.RETRY_IN_DOUBT,
    ErrorCode.not_enough_replicas_after_append: ProduceAction.RETRY_IN_DOUBT,
    ErrorCode.network_exception: ProduceAction.RETRY_IN_DOUBT,
    ErrorCode.not_leader_or_follower: ProduceAction.REFRESH,
    ErrorCode.leader_not_available: ProduceAction.REFRESH,
    ErrorCode.replica_not_available: ProduceAction.REFRESH,
    ErrorCode.unknown_topic_or_partition: ProduceAction.REFRESH,
    # The topic was deleted, and may exist again with another id and other partitions.
    ErrorCode.unknown_topic_id: ProduceAction.REFRESH,
    ErrorCode.inconsistent_topic_id: ProduceAction.REFRESH,
    ErrorCode.kafka_storage_error: ProduceAction.REFRESH,
    ErrorCode.fenced_leader_epoch: ProduceAction.REFRESH,
    ErrorCode.out_of_order_sequence_number: ProduceAction.NEW_SEQUENCE,
    ErrorCode.unknown_producer_id: ProduceAction.NEW_SEQUENCE,
    ErrorCode.invalid_producer_epoch: ProduceAction.NEW_SEQUENCE,
    ErrorCode.invalid_producer_id_mapping: ProduceAction.NEW_SEQUENCE,
    ErrorCode.producer_fenced: ProduceAction.NEW_SEQUENCE,
    ErrorCode.message_too_large: ProduceAction.SPLIT,
    ErrorCode.record_list_too_large: ProduceAction.SPLIT,
    ErrorCode.invalid_record: ProduceAction.SPLIT,
    ErrorCode.invalid_timestamp: ProduceAction.SPLIT,
}

# After these errors a rejected batch may be written all the same.
REJECTED_IN_DOUBT: Final = (ErrorCode.unknown_server_error,)

# A record that is rejected with these may be accepted if it is compressed.
TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)

# The broker or the topic accepts no batches with this compression.
REFUSED_COMPRESSION: Final = (
    ErrorCode.unsupported_compression_type,
    ErrorCode.unsupported_for_message_format,
)
_OTHER_COMPRESSION: Final = (
    "the broker does not accept this compression of record batches: use "
    'Consumer(compression="gzip"), or compression="none"'
)

REJECTIONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.topic_authorization_failed: "not authorized to write to it: grant WRITE on the topic",
    ErrorCode.cluster_authorization_failed: (
        "not authorized to write with idempotence: grant IDEMPOTENT_WRITE on the cluster"
    ),
    ErrorCode.invalid_topic_exception: "it is not a valid topic name, or an internal topic",
    ErrorCode.message_too_large: (
        "the record is larger than the topic allows, also if it is compressed: raise its "
        "max.message.bytes"
    ),
    ErrorCode.record_list_too_large: (
        "the record is larger than the topic's segments, also if it is compressed: raise its "
        "segment.bytes"
    ),
    ErrorCode.invalid_timestamp: "the topic does not allow the record's timestamp",
    ErrorCode.invalid_record: (
        "the broker rejects the record: a compacted topic requires a key, for example"
    ),
    **dict.fromkeys(REFUSED_COMPRESSION, _OTHER_COMPRESSION),
    ErrorCode.policy_violation: "a policy of the broker rejects the record",
}

NO_IDEMPOTENCE: Final = (
    "Consumer(idempotent=False), or --no-idempotence of a replay, writes without a producer id; "
    "then a record may be written twice when the response to its request is lost"
)


def action_for(error: ErrorCode) -> ProduceAction:
    """The action for a batch after a response with this error."""
    return PRODUCE_ERRORS.get(error, ProduceAction.REJECTED)


def rejection(error: ErrorCode, detail: str | None) -> str:
    """The reason for which a broker rejects a batch, as text."""
    text = REJECTIONS.get(error, f"the broker rejects the record ({error.name})")
    return f"{text} ({detail})" if detail else text
