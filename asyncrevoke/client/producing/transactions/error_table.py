"""The tables of errors of a transaction's requests, and what the producer does after each.

Codes that are not listed refuse the request: a transaction is aborted and fails, and a producer
whose id is refused can begin no other one.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Action(enum.Enum):
    """What the producer does after a response."""

    DONE = "done"
    AGAIN = "again"  # send the request again after a backoff
    FIND = "find"  # send it again, to the coordinator that FindCoordinator names
    IN_DOUBT = "in doubt"  # it may be processed, now or later: send the identical request again
    REFRESH = "refresh"  # the metadata is old: request it, and send the request again
    FENCED = "fenced"  # the epoch is not the present one
    ID_EXPIRED = "id expired"  # the coordinator has forgotten the producer id
    REDO = "redo"  # abort, and do the transaction again
    DOWNGRADED = "downgraded"  # the same, with the transaction.version that is offered then
    ABORTED = "aborted"  # the coordinator has aborted it: do it again
    DOUBTFUL = "doubtful"  # it may be committed
    REFUSED = "refused"


_COORDINATOR: Final[Mapping[ErrorCode, Action]] = {
    ErrorCode.none: Action.DONE,
    ErrorCode.concurrent_transactions: Action.AGAIN,
    ErrorCode.coordinator_load_in_progress: Action.AGAIN,
    ErrorCode.throttling_quota_exceeded: Action.AGAIN,
    ErrorCode.not_coordinator: Action.FIND,
    ErrorCode.coordinator_not_available: Action.FIND,
}

FIND_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    ErrorCode.none: Action.DONE,
    ErrorCode.coordinator_load_in_progress: Action.AGAIN,
    ErrorCode.coordinator_not_available: Action.AGAIN,
    ErrorCode.request_timed_out: Action.AGAIN,
    ErrorCode.unknown_server_error: Action.AGAIN,
    ErrorCode.throttling_quota_exceeded: Action.AGAIN,
}

INIT_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **_COORDINATOR,
    ErrorCode.request_timed_out: Action.AGAIN,
    ErrorCode.unknown_server_error: Action.AGAIN,
    ErrorCode.invalid_producer_id_mapping: Action.ID_EXPIRED,
}

ADD_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **_COORDINATOR,
    ErrorCode.operation_not_attempted: Action.AGAIN,
    ErrorCode.unknown_topic_or_partition: Action.REFRESH,
    ErrorCode.invalid_producer_epoch: Action.FENCED,
    ErrorCode.producer_fenced: Action.FENCED,
    ErrorCode.invalid_producer_id_mapping: Action.ID_EXPIRED,
    ErrorCode.invalid_txn_state: Action.REDO,
    ErrorCode.transaction_abortable: Action.REDO,
}

# Of AddOffsetsToTxn. GROUP_AUTHORIZATION_FAILED and the like reject the offsets.
ADD_OFFSETS_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **_COORDINATOR,
    ErrorCode.request_timed_out: Action.IN_DOUBT,
    ErrorCode.unknown_server_error: Action.IN_DOUBT,
    ErrorCode.invalid_producer_epoch: Action.FENCED,
    ErrorCode.producer_fenced: Action.FENCED,
    ErrorCode.invalid_producer_id_mapping: Action.ID_EXPIRED,
    ErrorCode.invalid_txn_state: Action.REDO,
    ErrorCode.transaction_abortable: Action.REDO,
}

# Of TxnOffsetCommit, for each partition. Other codes reject the offsets: of the member, as
# ILLEGAL_GENERATION, or of a partition, as OFFSET_METADATA_TOO_LARGE.
OFFSETS_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **ADD_OFFSETS_ERRORS,
    ErrorCode.unsupported_version: Action.DOWNGRADED,
    # The broker's metadata may be old: until the transaction's deadline.
    ErrorCode.unknown_topic_or_partition: Action.AGAIN,
}

# Of Produce in a transaction, before those of ``producing/error_table.py``.
PRODUCE_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    ErrorCode.invalid_producer_epoch: Action.FENCED,
    ErrorCode.producer_fenced: Action.FENCED,
    ErrorCode.invalid_producer_id_mapping: Action.ID_EXPIRED,
    ErrorCode.unknown_producer_id: Action.REDO,
    ErrorCode.out_of_order_sequence_number: Action.REDO,
    ErrorCode.invalid_txn_state: Action.REDO,
    ErrorCode.transaction_abortable: Action.REDO,
    # transaction.version 2 was lowered to 0 since the transaction began.
    ErrorCode.unsupported_version: Action.DOWNGRADED,
    # Nothing says whether the batch was written.
    ErrorCode.unknown_server_error: Action.REDO,
}

COMMIT_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **_COORDINATOR,
    ErrorCode.request_timed_out: Action.AGAIN,
    ErrorCode.unknown_server_error: Action.AGAIN,
    ErrorCode.transaction_abortable: Action.REDO,
    # With transaction.version 0 the coordinator cannot store what one of version 2 has begun.
    ErrorCode.unsupported_version: Action.AGAIN,
    # Unless an earlier EndTxn may have been processed, the coordinator has aborted it.
    ErrorCode.invalid_txn_state: Action.FENCED,
    ErrorCode.invalid_producer_epoch: Action.FENCED,
    ErrorCode.producer_fenced: Action.FENCED,
}
# With transaction.version 2, an ended transaction is told from one that is not there.
COMMIT_ERRORS_IMPLICIT: Final[Mapping[ErrorCode, Action]] = {
    **COMMIT_ERRORS,
    ErrorCode.invalid_txn_state: Action.ABORTED,
}

ABORT_ERRORS: Final[Mapping[ErrorCode, Action]] = {
    **_COORDINATOR,
    ErrorCode.request_timed_out: Action.AGAIN,
    ErrorCode.unknown_server_error: Action.AGAIN,
    ErrorCode.unsupported_version: Action.AGAIN,
    ErrorCode.invalid_txn_state: Action.FENCED,
    ErrorCode.invalid_producer_epoch: Action.FENCED,
    ErrorCode.producer_fenced: Action.FENCED,
    ErrorCode.invalid_producer_id_mapping: Action.ID_EXPIRED,
}

_FENCED: Final = (
    "another producer uses this transactional id, so give each producer an id of its own; or a "
    "transaction took longer than transaction_timeout, below transaction.version 2"
)
REFUSALS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.transactional_id_authorization_failed: (
        "not authorized to use the transactional id: grant DESCRIBE and WRITE on it"
    ),
    ErrorCode.invalid_transaction_timeout: (
        "the broker does not allow this transaction_timeout: lower it, or raise "
        "transaction.max.timeout.ms of the brokers"
    ),
    **dict.fromkeys((ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch), _FENCED),
    ErrorCode.topic_authorization_failed: "not authorized to write to a topic: grant WRITE on it",
}


# What decides, if the partitions of a response have several errors: the first one of these.
_GRAVEST: Final = (
    Action.FENCED,
    Action.ID_EXPIRED,
    Action.REFUSED,
    Action.DOWNGRADED,
    Action.REDO,
    Action.FIND,
    Action.REFRESH,
    Action.IN_DOUBT,
    Action.AGAIN,
)


def gravest(actions: Iterable[Action]) -> Action:
    """The action that decides what the producer does after a response with all of these."""
    found = set(actions)
    return next((action for action in _GRAVEST if action in found), Action.DONE)


def refusal(error: ErrorCode) -> str:
    """The reason for which a coordinator refuses a request, as text."""
    return REFUSALS.get(error, f"the coordinator responds with {error.name}")
