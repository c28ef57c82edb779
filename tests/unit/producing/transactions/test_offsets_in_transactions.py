"""Offsets of a group in a transaction: the requests, and what follows from each error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.producing.transactions.transaction_brokers import TransactionBrokers
from unit.producing.transactions.transaction_setting import INPUT, Setting, offsets_of

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied
from asyncrevoke.client.errors import (
    ProducerFencedError,
    PublishError,
    TransactionError,
    UnsupportedVersionError,
)
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.producing.requests import ProduceRequest
from asyncrevoke.client.producing.transactions.group_offsets import OffsetsRejectedError
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    init_producer_id,
    offered_transaction_version,
)
from asyncrevoke.client.producing.transactions.state_table import State
from asyncrevoke.client.producing.transactions.transaction import (
    RecordsRefusedError,
    TransactionTimedOutError,
)
from asyncrevoke.client.protocol.messages import (
    ApiVersionsResponse,
    ErrorCode,
    FindCoordinatorRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.producing.transactions.transaction_setting import Ends

    from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest
    from asyncrevoke.client.protocol.messages import Request, Response

ORDERS_0, ORDERS_1 = TopicPartition(INPUT, 0), TopicPartition(INPUT, 1)


def ready(version: int) -> Setting:
    """A producer that has committed once, so that it knows both coordinators."""
    setting = Setting(TransactionBrokers(version))
    setting.transaction({2: [b"first"]}, offsets=offsets_of({2: 1}))
    setting.run()
    setting.settle()
    setting.brokers.group.applied.clear()
    setting.sent.clear()
    return setting


def run(setting: Setting, *, generation: int = 1) -> Ends:
    ends = setting.transaction({0: [b"a"]}, offsets=offsets_of({0: 7, 1: 9}, generation))
    setting.run()
    setting.settle()
    return ends


def sent(setting: Setting) -> list[str]:
    return [type(asked.message).__name__.removesuffix("Request") for asked in setting.sent]


def was_committed(setting: Setting) -> bool:
    """Whether records and offsets are visible; fails if it is one of them alone."""
    records = setting.visible()[0] == [b"a"]
    offsets = setting.brokers.group.applied == [{ORDERS_0: 7, ORDERS_1: 9}]
    assert records is offsets
    return records


def test_offsets_follow_the_records_and_precede_the_end_with_transaction_version_2() -> None:
    setting = ready(2)
    assert run(setting).error is None
    assert sent(setting) == ["Produce", "TxnOffsetCommit", "EndTxn"]
    assert was_committed(setting)


@pytest.mark.parametrize("version", [0, 1])
def test_lower_transaction_versions_add_the_group_before_the_records(version: int) -> None:
    setting = ready(version)
    assert run(setting).error is None
    assert sent(setting) == [
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "Produce",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    assert was_committed(setting)


@pytest.mark.parametrize(
    ("version", "requests"),
    [(2, ["TxnOffsetCommit", "EndTxn"]), (1, ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])],
)
def test_a_transaction_may_have_offsets_without_records(version: int, requests: list[str]) -> None:
    setting = ready(version)
    ends = setting.transaction({}, offsets=offsets_of({0: 7}))
    setting.run()
    setting.settle()
    assert ends.has_ended
    assert ends.error is None
    assert sent(setting) == requests
    assert setting.brokers.group.applied == [{ORDERS_0: 7}]


def test_the_coordinator_of_another_group_is_found_anew() -> None:
    setting = ready(2)
    offsets = offsets_of({0: 7})
    other = offsets._replace(identity=offsets.identity._replace(group_id="others"))
    setting.transaction({}, offsets=other)
    setting.run()
    found = [o.message for o in setting.sent if isinstance(o.message, FindCoordinatorRequest)]
    assert [message.group_id for message in found] == ["others"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_rejected_member_aborts_and_names_all_partitions(version: int) -> None:
    setting = ready(version)
    ends = run(setting, generation=0)
    assert isinstance(ends.error, OffsetsRejectedError)
    assert set(ends.error.errors) == {ORDERS_0, ORDERS_1}
    assert set(ends.error.errors.values()) == {ErrorCode.illegal_generation}
    assert "illegal_generation" in str(ends.error)
    assert not was_committed(setting)
    assert run(setting).error is None
    assert was_committed(setting)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_are_sent_again_with_the_present_epoch_of_the_member(version: int) -> None:
    setting = ready(version)
    offsets = offsets_of({0: 7, 1: 9}, generation=0)
    present = offsets.identity._replace(generation=1)
    rejected: list[GroupMetadata] = []

    def renewed(identity: GroupMetadata) -> GroupMetadata:
        rejected.append(identity)
        return identity if len(rejected) < 3 else present

    ends = setting.transaction({0: [b"a"]}, offsets=offsets._replace(renewed=renewed))
    setting.run()
    setting.settle()
    assert ends.error is None
    assert was_committed(setting)
    assert rejected == [offsets.identity] * 3
    assert sent(setting).count("TxnOffsetCommit") == 4
    assert sent(setting).count("Produce") == 1


@pytest.mark.parametrize("version", [1, 2])
def test_an_epoch_that_is_rejected_for_ever_aborts_the_transaction_in_time(version: int) -> None:
    setting = ready(version)

    def same(identity: GroupMetadata) -> GroupMetadata:
        return identity

    offsets = offsets_of({0: 7, 1: 9}, generation=0)._replace(renewed=same)
    ends = setting.transaction({0: [b"a"]}, offsets=offsets)
    setting.run()
    assert isinstance(ends.error, TransactionTimedOutError)
    assert sent(setting).count("TxnOffsetCommit") < 30
    assert not was_committed(setting)


@pytest.mark.parametrize("version", [1, 2])
def test_a_rejected_partition_aborts_the_other_ones(version: int) -> None:
    setting = ready(version)
    offsets = offsets_of({0: 7, 1: 9}, metadata={1: "x" * 5000})
    ends = setting.transaction({0: [b"a"]}, offsets=offsets)
    setting.run()
    setting.settle()
    assert isinstance(ends.error, OffsetsRejectedError)
    assert ends.error.errors == {ORDERS_1: ErrorCode.offset_metadata_too_large}
    assert setting.brokers.group.applied == []
    assert setting.visible()[0] == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
        ErrorCode.invalid_txn_state,
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_producer_id_mapping,
    ],
)
def test_offsets_are_committed_after_an_error_that_passes(version: int, error: ErrorCode) -> None:
    setting = ready(version)
    setting.brokers.rejections = {TxnOffsetCommitRequest: [error]}
    ends = run(setting)
    assert ends.error is None
    assert was_committed(setting)


@pytest.mark.parametrize(("version", "succeeds"), [(1, False), (2, True)])
def test_offsets_of_a_transaction_that_the_coordinator_has_aborted_are_sent_again(
    version: int, succeeds: bool
) -> None:
    setting = ready(version)
    expired = iter([True])

    def fault(outgoing: TransactionRequest) -> str:
        if isinstance(outgoing.message, TxnOffsetCommitRequest) and next(expired, False):
            setting.brokers.expire()
        return "response"

    setting.faults = fault
    ends = run(setting)
    # Below transaction.version 2 that looks as if another producer had the id.
    assert (ends.error is None) is succeeds
    assert succeeds or isinstance(ends.error, ProducerFencedError)
    assert was_committed(setting) is succeeds


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.group_id_not_found,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.invalid_commit_offset_size,
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
    ],
)
def test_a_rejection_is_an_error_with_its_code_after_the_abort(
    version: int, error: ErrorCode
) -> None:
    setting = ready(version)
    setting.brokers.rejections = {TxnOffsetCommitRequest: [error]}
    ends = run(setting)
    assert isinstance(ends.error, OffsetsRejectedError)
    assert set(ends.error.errors.values()) == {error}
    assert sent(setting)[-1] in ("EndTxn", "InitProducerId")
    assert not was_committed(setting)


@pytest.mark.parametrize(
    ("version", "request_type"),
    [(2, FindCoordinatorRequest), (1, FindCoordinatorRequest), (1, AddOffsetsToTxnRequest)],
)
def test_a_group_without_authorization_is_a_rejection(version: int, request_type: type) -> None:
    setting = Setting(TransactionBrokers(version))
    setting.transaction({2: [b"first"]})
    setting.run()
    setting.settle()
    setting.brokers.rejections = {request_type: [ErrorCode.group_authorization_failed]}
    ends = run(setting)
    assert isinstance(ends.error, OffsetsRejectedError)
    assert set(ends.error.errors.values()) == {ErrorCode.group_authorization_failed}
    assert not was_committed(setting)
    assert run(setting).error is None


@pytest.mark.parametrize("request_type", [AddOffsetsToTxnRequest, TxnOffsetCommitRequest])
def test_a_transactional_id_without_authorization_says_what_to_grant(request_type: type) -> None:
    setting = ready(1)
    denied = ErrorCode.transactional_id_authorization_failed
    setting.brokers.rejections = {request_type: [denied]}
    ends = run(setting)
    assert type(ends.error) is TransactionError
    assert "grant DESCRIBE and WRITE" in str(ends.error)
    assert not was_committed(setting)


def test_unknown_topics_are_tried_until_the_deadline_and_then_abort() -> None:
    setting = ready(2)
    setting.brokers.rejections = {
        TxnOffsetCommitRequest: [ErrorCode.unknown_topic_or_partition] * 1000
    }
    started = setting.now
    ends = run(setting)
    assert isinstance(ends.error, TransactionError)
    assert "unknown_topic_or_partition" in str(ends.error)
    assert setting.now - started >= 15.0
    assert not was_committed(setting)


@pytest.mark.parametrize(
    ("version", "request_type"),
    [(2, TxnOffsetCommitRequest), (1, TxnOffsetCommitRequest), (1, AddOffsetsToTxnRequest)],
)
def test_a_broker_without_the_version_aborts_for_good_and_takes_transactions_without_offsets(
    version: int, request_type: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = ready(version)
    detail = "the broker does not offer TxnOffsetCommit"
    deliver = setting._deliver

    def unsupported(outgoing: TransactionRequest, fault: str) -> None:
        if isinstance(outgoing.message, request_type):
            failed = Failed(0, FailureKind.UNSUPPORTED, detail)
            setting.at(setting.now, lambda: setting._received(outgoing, failed))
        else:
            deliver(outgoing, fault)

    monkeypatch.setattr(setting, "_deliver", unsupported)
    ends = run(setting)
    assert type(ends.error) is UnsupportedVersionError
    assert detail in str(ends.error)
    assert not was_committed(setting)
    after = setting.transaction({0: [b"b"]})
    setting.run()
    assert after.error is None


@pytest.mark.parametrize("lost", ["response lost", "late", "timed out"])
def test_a_new_epoch_begins_after_offsets_in_doubt_below_transaction_version_2(lost: str) -> None:
    setting = ready(1)
    faults = iter([lost])
    setting.faults = lambda outgoing: (
        next(faults, "response")
        if isinstance(outgoing.message, TxnOffsetCommitRequest)
        else "response"
    )
    ends = setting.transaction({0: [b"a"]}, offsets=offsets_of({0: 7, 1: 9}))
    setting.run()
    setting.run(lambda: setting.core.state is State.READY)
    setting.settle()
    assert ends.error is None
    assert was_committed(setting)
    assert sent(setting)[-1] == "InitProducerId"
    commits = [o.message for o in setting.sent if isinstance(o.message, TxnOffsetCommitRequest)]
    assert len(commits) == 2
    assert commits[0] == commits[1]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("before", [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest])
def test_a_transaction_is_aborted_with_the_error_of_the_caller_until_its_commit_is_sent(
    version: int, before: type
) -> None:
    setting = ready(version)
    error = LookupError("a partition was lost")
    results: list[bool] = []

    def fault(outgoing: TransactionRequest) -> str:
        if isinstance(outgoing.message, before):
            setting.at(setting.now, lambda: results.append(setting.core.cancel(setting.now, error)))
            setting.faults = lambda _: "response"
        return "response"

    setting.faults = fault
    ends = run(setting)
    is_late = before is EndTxnRequest
    assert results == [not is_late]
    assert ends.error is (None if is_late else error)
    assert was_committed(setting) is is_late
    assert not setting.core.cancel(setting.now, error)


def test_a_commit_that_no_broker_has_received_can_be_aborted() -> None:
    setting = ready(2)
    error = LookupError("a partition was lost")
    setting.faults = lambda outgoing: (
        "unreachable" if isinstance(outgoing.message, EndTxnRequest) else "response"
    )
    ends = setting.transaction({0: [b"a"]}, offsets=offsets_of({0: 7, 1: 9}))
    setting.run(lambda: setting.core.state is State.COMMITTING)
    setting.run(lambda: not setting.core._commit_sent)
    assert setting.core.cancel(setting.now, error)
    setting.faults = lambda _: "response"
    setting.run()
    setting.settle()
    assert ends.error is error
    assert not was_committed(setting)


@pytest.mark.parametrize("version", [1, 2])
def test_an_end_in_doubt_is_settled_by_the_next_epoch(version: int) -> None:
    setting = ready(version)
    setting.faults = lambda outgoing: (
        "response lost" if isinstance(outgoing.message, EndTxnRequest) else "response"
    )
    ends = setting.transaction({0: [b"a"]}, offsets=offsets_of({0: 7, 1: 9}))
    setting.run()
    assert isinstance(ends.error, TransactionError)
    assert ends.error.in_doubt
    assert not setting.core.settle()
    setting.run(setting.core.settle)
    assert was_committed(setting)
    assert sent(setting)[-1] == "InitProducerId"


def test_refused_records_are_named_and_the_others_are_not() -> None:
    setting = ready(2)
    setting.brokers.rejections = {ProduceRequest: [ErrorCode.invalid_record]}
    ends = setting.transaction({0: [b"a"]}, offsets=offsets_of({0: 7, 1: 9}))
    setting.run()
    setting.settle()
    assert isinstance(ends.error, RecordsRefusedError)
    assert ends.error.tokens == [b"a"]
    assert ends.error.of_record
    assert not was_committed(setting)


def test_records_of_a_topic_without_authorization_are_named() -> None:
    setting = ready(1)
    setting.brokers.rejections = {AddPartitionsToTxnRequest: [ErrorCode.topic_authorization_failed]}
    ends = setting.transaction({1: [b"a", b"b"]})
    setting.run()
    assert isinstance(ends.error, RecordsRefusedError)
    assert isinstance(ends.error, PublishError)
    assert ends.error.tokens == [b"a", b"b"]


@pytest.mark.parametrize(("highest", "version"), [(5, 2), (4, 1)])
def test_transaction_version_2_needs_its_version_of_txn_offset_commit(
    highest: int, version: int
) -> None:
    response = ApiVersionsResponse(
        error=ErrorCode.none,
        ranges={0: (0, 13), 26: (0, 5), 28: (0, highest)},
        features={"transaction.version": 2},
    )
    assert offered_transaction_version(response) == version


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    ],
)
def test_a_commit_is_in_doubt_if_the_producer_is_fenced_after_an_error_of_the_coordinator(
    error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = ready(1)
    brokers, handle = setting.brokers, setting.brokers.handle

    def taken_over(message: Request) -> Response:
        response = handle(message)
        if isinstance(message, EndTxnRequest) and brokers.completing is not None:
            brokers.complete()
            handle(init_producer_id("id", 60.0))
            return brokers.rejected(message, error)
        return response

    monkeypatch.setattr(brokers, "handle", taken_over)
    ends = run(setting)
    assert isinstance(ends.error, TransactionError)
    assert ends.error.in_doubt
    assert was_committed(setting)


def test_a_response_to_the_offsets_of_an_earlier_transaction_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = ready(2)
    deliver = setting._deliver
    held: list[TransactionRequest] = []
    late: list[Callable[[], None]] = []

    def hold_the_first(outgoing: TransactionRequest, fault: str) -> None:
        if isinstance(outgoing.message, TxnOffsetCommitRequest) and not held:
            held.append(outgoing)
            reply = Replied(0, setting.brokers.handle(outgoing.message))
            late.append(lambda: setting._received(outgoing, reply))
            return
        if isinstance(outgoing.message, TxnOffsetCommitRequest):
            fault = "lost"
            if late:
                setting.at(setting.now, late.pop())
        deliver(outgoing, fault)

    monkeypatch.setattr(setting, "_deliver", hold_the_first)
    first = setting.transaction({}, offsets=offsets_of({0: 5, 1: 6}))
    setting.run()
    assert isinstance(first.error, TransactionError)
    second = setting.transaction({}, offsets=offsets_of({0: 7, 1: 9}))
    setting.run()
    assert isinstance(second.error, TransactionError), "its own request was lost"
