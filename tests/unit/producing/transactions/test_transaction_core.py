"""What a transactional producer does after each error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.producing.transactions.transaction_brokers import TransactionBrokers
from unit.producing.transactions.transaction_setting import Setting, offsets_of

from asyncrevoke.client.core.io.effects import Replied
from asyncrevoke.client.errors import ProducerFencedError, PublishError, TransactionError
from asyncrevoke.client.producing.requests import ProduceRequest
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.producing.transactions.state_table import TRANSITIONS, Event, State
from asyncrevoke.client.producing.transactions.transaction import TransactionTimedOutError
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ErrorCode,
    FindCoordinatorRequest,
    Request,
)

if TYPE_CHECKING:
    from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest


def sent(setting: Setting) -> list[str]:
    """The requests since the last call, with how a transaction was to end."""
    found: list[str] = []
    for outgoing in setting.sent:
        name = type(outgoing.message).__name__.removesuffix("Request")
        if isinstance(outgoing.message, EndTxnRequest):
            name += " (commit)" if outgoing.message.committed else " (abort)"
        found.append(name)
    setting.sent.clear()
    return found


INIT = ["FindCoordinator", "ApiVersions", "InitProducerId"]


def test_transaction_version_2_needs_no_request_for_partitions() -> None:
    setting = Setting(TransactionBrokers(2))
    ends = setting.transaction({0: [b"a", b"b"], 2: [b"c"]})
    setting.run()
    setting.settle()
    assert ends.acknowledged == 3
    assert sent(setting) == [*INIT, "Produce", "EndTxn (commit)"]
    assert setting.visible() == [[b"a", b"b"], [], [b"c"]]


@pytest.mark.parametrize("version", [0, 1])
def test_lower_transaction_versions_add_the_partitions_first(version: int) -> None:
    setting = Setting(TransactionBrokers(version))
    setting.transaction({0: [b"a"], 1: [b"b"]})
    setting.run()
    setting.settle()
    assert sent(setting) == [*INIT, "AddPartitionsToTxn", "Produce", "EndTxn (commit)"]
    assert setting.visible() == [[b"a"], [b"b"], []]


@pytest.mark.parametrize("version", [1, 2])
def test_a_response_that_is_lost_repeats_the_request_and_writes_once(version: int) -> None:
    for kind in (ProduceRequest, EndTxnRequest, InitProducerIdRequest, AddPartitionsToTxnRequest):
        setting = Setting(TransactionBrokers(version))
        lost: list[object] = []

        def fault(outgoing: object, kind: type = kind, lost: list[object] = lost) -> str:
            message = getattr(outgoing, "message", None)
            if isinstance(message, kind) and not lost:
                lost.append(message)
                return "response lost"
            return "response"

        setting.faults = fault
        ends = setting.transaction({0: [b"a"]})
        setting.run()
        setting.settle()
        assert ends.error is None
        assert setting.visible() == [[b"a"], [], []]


def test_a_new_epoch_begins_after_a_lost_response_below_transaction_version_2() -> None:
    setting = Setting(TransactionBrokers(1))
    setting.faults = lambda _: "response"
    setting.transaction({0: [b"a"]})
    setting.run()
    sent(setting)
    lost = iter(["response lost"])
    setting.faults = lambda outgoing: (
        next(lost, "response") if isinstance(outgoing.message, ProduceRequest) else "response"
    )
    setting.transaction({0: [b"b"]})
    setting.run()
    setting.run(lambda: setting.core.state is State.READY)
    assert sent(setting)[-1] == "InitProducerId"


@pytest.mark.parametrize("version", [1, 2])
def test_a_refused_record_aborts_the_transaction_and_fails_it(version: int) -> None:
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    brokers.rejections = {ProduceRequest: [ErrorCode.topic_authorization_failed]}
    ends = setting.transaction({0: [b"a"], 1: [b"b"]})
    setting.run()
    assert isinstance(ends.error, PublishError)
    assert "WRITE" in str(ends.error)
    assert sent(setting)[-1] == "EndTxn (abort)"
    again = setting.transaction({0: [b"c"]})
    setting.run()
    setting.settle()
    assert again.error is None
    assert setting.visible() == [[b"c"], [], []]


def test_a_refused_partition_below_transaction_version_2_needs_no_end() -> None:
    brokers = TransactionBrokers(1)
    setting = Setting(brokers)
    brokers.rejections = {AddPartitionsToTxnRequest: [ErrorCode.topic_authorization_failed]}
    ends = setting.transaction({0: [b"a"]})
    setting.run()
    assert isinstance(ends.error, PublishError)
    assert sent(setting) == [*INIT, "AddPartitionsToTxn"]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.message_too_large, ErrorCode.invalid_record, ErrorCode.transaction_abortable],
)
def test_a_transaction_is_done_again_after_a_batch_that_can_be_sent_otherwise(
    error: ErrorCode,
) -> None:
    brokers = TransactionBrokers(2)
    setting = Setting(brokers)
    brokers.rejections = {ProduceRequest: [error]}
    ends = setting.transaction({0: [b"a", b"b"]})
    setting.run()
    setting.settle()
    assert ends.error is None
    assert "EndTxn (abort)" in sent(setting)
    assert setting.visible() == [[b"a", b"b"], [], []]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_done_again_after_a_backoff_that_grows(version: int) -> None:
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    brokers.rejections = {ProduceRequest: [ErrorCode.transaction_abortable] * 1000}
    ends = setting.transaction({0: [b"a"]}, longest=15.0)
    setting.run()
    assert isinstance(ends.error, TransactionError)
    assert 10 < sent(setting).count("Produce") < 25
    again = setting.transaction({0: [b"b"]})
    brokers.rejections = {}
    setting.run()
    assert again.error is None


@pytest.mark.parametrize(
    ("request_type", "error", "kind", "words"),
    [
        (
            FindCoordinatorRequest,
            ErrorCode.transactional_id_authorization_failed,
            TransactionError,
            "grant DESCRIBE and WRITE",
        ),
        (
            InitProducerIdRequest,
            ErrorCode.invalid_transaction_timeout,
            TransactionError,
            "transaction.max.timeout.ms",
        ),
        (InitProducerIdRequest, ErrorCode.producer_fenced, ProducerFencedError, "an id of its own"),
    ],
)
def test_a_refused_transactional_id_fails_every_transaction(
    request_type: type, error: ErrorCode, kind: type[Exception], words: str
) -> None:
    brokers = TransactionBrokers(2)
    setting = Setting(brokers)
    brokers.rejections = {request_type: [error]}
    for _ in range(2):
        ends = setting.transaction({0: [b"a"]})
        setting.run()
        assert type(ends.error) is kind
        assert words in str(ends.error)
    assert setting.visible() == [[], [], []]


def test_a_coordinator_that_never_responds_fails_the_transaction_in_time() -> None:
    setting = Setting(TransactionBrokers(2))
    setting.faults = lambda _: "lost"
    ends = setting.transaction({0: [b"a"]}, longest=12.0)
    setting.run()
    assert setting.now == pytest.approx(12.0)
    assert isinstance(ends.error, TransactionError)
    assert not ends.error.in_doubt
    assert "no response" in str(ends.error)


def test_an_error_names_no_failure_of_an_earlier_transaction() -> None:
    setting = Setting(TransactionBrokers(2))
    refused = iter(("unreachable",))
    setting.faults = lambda outgoing: (
        next(refused, "response") if isinstance(outgoing.message, ProduceRequest) else "response"
    )
    ends = setting.transaction({0: [b"a"]})
    setting.run()
    assert (ends.error, setting.core.last_failure) == (None, "refused")
    # The response to Produce is still outstanding at the end of the time of the transaction.
    setting.faults = lambda outgoing: (
        "lost" if isinstance(outgoing.message, ProduceRequest) else "response"
    )
    ends = setting.transaction({0: [b"b"]}, longest=3.0)
    setting.run()
    assert isinstance(ends.error, TransactionTimedOutError)
    assert "a broker has not responded" in str(ends.error)


def test_a_commit_that_gets_no_response_is_in_doubt_after_the_coordinator_must_have_ended() -> None:
    setting = Setting(TransactionBrokers(2))
    setting.faults = lambda outgoing: (
        "response lost" if isinstance(outgoing.message, EndTxnRequest) else "response"
    )
    ends = setting.transaction({0: [b"a"]})
    setting.run()
    assert isinstance(ends.error, TransactionError)
    assert ends.error.in_doubt
    assert 80.0 <= setting.now < 90.0


def test_a_producer_is_fenced_by_another_one_with_its_id() -> None:
    brokers = TransactionBrokers(2)
    first, second = Setting(brokers), Setting(brokers)
    for setting in (first, second):
        setting.transaction({0: [b"a"]})
        setting.run()
        setting.settle()
    ends = first.transaction({0: [b"late"]})
    first.run()
    assert isinstance(ends.error, ProducerFencedError)
    ends = second.transaction({0: [b"b"]})
    second.run()
    second.settle()
    assert ends.error is None
    assert second.visible()[0] == [b"a", b"a", b"b"]


@pytest.mark.parametrize(("version", "succeeds"), [(1, False), (2, True)])
def test_a_transaction_that_the_coordinator_has_aborted_is_done_again(
    version: int, succeeds: bool
) -> None:
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    expired = iter([True])

    def fault(outgoing: object) -> str:
        if isinstance(getattr(outgoing, "message", None), EndTxnRequest) and next(expired, False):
            brokers.expire()
        return "response"

    setting.faults = fault
    ends = setting.transaction({0: [b"a"]})
    setting.run()
    setting.settle()
    # Below transaction.version 2 that looks as if another producer had the id.
    assert (ends.error is None) is succeeds
    assert succeeds or isinstance(ends.error, ProducerFencedError)
    assert setting.visible()[0] == [b"a"] * succeeds


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_before_the_coordinator_does(
    version: int,
) -> None:
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    setting.transaction({0: [b"first"]})
    setting.run()
    began = setting.now
    setting.faults = lambda outgoing: (
        "lost" if isinstance(outgoing.message, ProduceRequest) else "response"
    )
    ends = setting.transaction({0: [b"a"]}, longest=100.0)
    sent(setting)
    setting.run()
    assert isinstance(ends.error, TransactionTimedOutError)
    assert "transaction_timeout" in str(ends.error)
    assert setting.now - began == pytest.approx(0.9 * 60.0, abs=0.1)
    assert "EndTxn (abort)" in sent(setting)
    setting.faults = lambda _: "response"
    again = setting.transaction({0: [b"b"]})
    setting.run()
    setting.settle()
    assert again.error is None
    assert setting.visible()[0] == [b"first", b"b"]


def test_a_transaction_that_the_coordinator_has_aborted_in_time_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = TransactionBrokers(2)
    setting = Setting(brokers)
    setting.transaction({0: [b"first"]})
    setting.run()
    setting.settle()
    deliver = setting._deliver

    def slowly(outgoing: TransactionRequest, fault: str) -> None:
        if isinstance(outgoing.message, EndTxnRequest):
            setting.at(setting.now + 60.0, brokers.expire)
            setting.at(setting.now + 60.0, lambda: deliver(outgoing, fault))
        else:
            deliver(outgoing, fault)

    monkeypatch.setattr(setting, "_deliver", slowly)
    ends = setting.transaction({0: [b"a"]})
    sent(setting)
    setting.run()
    assert isinstance(ends.error, TransactionTimedOutError)
    assert sent(setting).count("Produce") == 1


def test_a_late_response_to_a_batch_of_an_aborted_epoch_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = TransactionBrokers(2, leaders=2)
    setting = Setting(brokers)
    deliver = setting._deliver
    held: list[TransactionRequest] = []

    def hold_the_first_of_the_second_leader(outgoing: TransactionRequest, fault: str) -> None:
        if outgoing.node.node_id == 2 and not held:
            held.append(outgoing)
            reply = Replied(0, brokers.handle(outgoing.message))
            setting.at(setting.now + 1.0, lambda: setting._received(outgoing, reply))
            brokers.expire()
        else:
            deliver(outgoing, fault)

    monkeypatch.setattr(setting, "_deliver", hold_the_first_of_the_second_leader)
    ends = setting.transaction({0: [b"a"], 1: [b"b"]})
    setting.run()
    setting.settle()
    assert ends.error is None
    assert setting.visible() == [[b"a"], [b"b"], []]


def test_the_transaction_version_is_asked_again_and_changes_with_the_epoch() -> None:
    brokers = TransactionBrokers(1)
    setting = Setting(brokers)
    setting.transaction({0: [b"a"]})
    setting.run()
    setting.settle()
    brokers.version = 2
    setting.now += 301.0
    sent(setting)
    ends = setting.transaction({0: [b"b"]})
    setting.run()
    setting.settle()
    assert ends.error is None
    assert sent(setting) == ["ApiVersions", "InitProducerId", "Produce", "EndTxn (commit)"]
    assert setting.visible()[0] == [b"a", b"b"]


@pytest.mark.parametrize("refused", [ProduceRequest, TxnOffsetCommitRequest])
def test_a_transaction_is_done_again_after_transaction_version_2_is_lowered_to_0(
    refused: type[Request],
) -> None:
    brokers = TransactionBrokers(2)
    setting = Setting(brokers)
    setting.transaction({0: [b"a"]})
    setting.run()
    setting.settle()

    def fault(outgoing: TransactionRequest) -> str:
        if isinstance(outgoing.message, ApiVersionsRequest):
            brokers.version = 0
        return "response"

    brokers.rejections = {
        refused: [ErrorCode.unsupported_version],
        EndTxnRequest: [ErrorCode.unsupported_version],
    }
    setting.faults = fault
    sent(setting)
    ends = setting.transaction({0: [b"b"]}, offsets=offsets_of({0: 1}))
    setting.run()
    setting.settle()
    assert ends.error is None
    requests = [name for name in sent(setting) if name != "FindCoordinator"]
    assert requests[-5:] == [
        *("AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit"),
        "EndTxn (commit)",
    ]
    assert setting.visible()[0] == [b"a", b"b"]


def test_versions_are_asked_of_the_coordinator_in_a_version_with_features() -> None:
    setting = Setting(TransactionBrokers(2))
    setting.transaction({0: [b"a"]})
    setting.run()
    asked = [o.message for o in setting.sent if isinstance(o.message, ApiVersionsRequest)]
    assert [message.highest_version for message in asked] == [3]


def test_each_state_that_an_event_leads_to_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached | {State.UNINITIALIZED, State.FATAL} == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)
