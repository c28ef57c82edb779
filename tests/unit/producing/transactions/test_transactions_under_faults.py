"""Random faults of requests: what is visible of each transaction is what its end has said."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from unit.producing.transactions.transaction_brokers import TransactionBrokers
from unit.producing.transactions.transaction_setting import INPUT, Ends, Setting, offsets_of

from asyncrevoke.client.errors import ProducerFencedError, TransactionError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.transactions.error_table import COMMIT_ERRORS_IMPLICIT, Action
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
)
from asyncrevoke.client.producing.transactions.state_table import TRANSITIONS, Event, State
from asyncrevoke.client.producing.transactions.transaction import PartitionBatches
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest

FAULTS = ["lost", "response lost", "late", "unreachable"]
_Values = dict[int, list[bytes]]
_Offsets = dict[int, int]


def run_schedule(version: int, seed: int) -> None:
    """Twelve transactions, with faults; and one more, without."""
    draw = random.Random(f"{version} {seed}")
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    share = draw.choice([0.0, 0.1, 0.3, 0.5])

    def faults(outgoing: TransactionRequest) -> str:
        if draw.random() >= share:
            return "response"
        possible = list(FAULTS)
        if isinstance(
            outgoing.message, (TxnOffsetCommitRequest, AddOffsetsToTxnRequest, EndTxnRequest)
        ):
            possible.append("not coordinator")
        if isinstance(outgoing.message, TxnOffsetCommitRequest):
            possible.append("timed out")
        setting.processed_after = draw.choice([0.0, 0.02, 1.0])
        return draw.choice(possible)

    setting.faults = faults
    ended: list[tuple[Ends, _Values, _Offsets]] = []
    for number in range(12):
        offsets: _Offsets = dict.fromkeys(draw.sample(range(3), draw.randint(0, 3)), number + 1)
        values: _Values = {
            partition: [b"%d-%d-%d" % (number, partition, n) for n in range(draw.randint(1, 4))]
            for partition in draw.sample(range(3), draw.randint(0 if offsets else 1, 3))
        }
        is_member = draw.random() < 0.95
        if version == 2 and draw.random() < 0.1:
            setting.at(setting.now + draw.uniform(0.0, 0.02), brokers.expire)
        sent = offsets_of(offsets, 1 if is_member else 0) if offsets else None
        longest = draw.choice([1.0, 15.0, 40.0])
        ends = setting.transaction(values, longest=longest, offsets=sent)
        if draw.random() < 0.1:
            setting.at(setting.now + draw.uniform(0.0, 0.05), partial(cancel, setting, ends))
        setting.run()
        assert not isinstance(ends.error, ProducerFencedError), "there is no other producer"
        ended.append((ends, values, offsets))
    setting.faults = lambda _: "response"
    last = setting.transaction({0: [b"last"]})
    setting.run()
    assert last.error is None
    setting.settle()
    for ends, values, offsets in ended:
        check(ends, values, offsets, setting)
    check_order(brokers.group.applied)
    for log in brokers.logs:
        assert not [batch for batch in log.batches if batch.committed is None]
        assert [value for value, times in Counter(log.visible).items() if times > 1] == []


def cancel(setting: Setting, ends: Ends) -> None:
    if not ends.has_ended:
        setting.core.cancel(setting.now, TransactionError("cancelled"))


def check_order(applied: list[dict[TopicPartition, int]]) -> None:
    """Whether each commit of offsets is above the one before."""
    committed: dict[TopicPartition, int] = {}
    for offsets in applied:
        for partition, offset in offsets.items():
            assert offset > committed.get(partition, 0)
        committed.update(offsets)


def check(ends: Ends, values: _Values, offsets: _Offsets, setting: Setting) -> None:
    """Whether readers and the group see of a transaction what its end has said."""
    visible = setting.visible()
    count = sum(map(len, values.values()))
    assert ends.has_ended
    assert ends.acknowledged + ends.failed == count
    assert ends.acknowledged in (0, count)
    seen = sum(value in visible[number] for number, content in values.items() for value in content)
    entries = {TopicPartition(INPUT, number): offset for number, offset in offsets.items()}
    is_committed = entries in setting.brokers.group.applied
    if values and offsets:
        assert is_committed is (seen == count)
    if ends.error is None:
        assert seen == count
        assert is_committed or not offsets
    elif isinstance(ends.error, TransactionError) and ends.error.in_doubt:
        assert seen in (0, count)
    else:
        assert seen == 0
        assert not is_committed


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("block", range(4))
def test_each_transaction_is_visible_as_its_end_was_reported(version: int, block: int) -> None:
    for seed in range(75 * block, 75 * (block + 1)):
        run_schedule(version, seed)


def _numbers_begin_anew(patch: pytest.MonkeyPatch) -> None:
    content = PartitionBatches.content

    def from_zero(batches: PartitionBatches, producer_id: int, epoch: int) -> bytearray:
        if not batches.acknowledged:
            batches.number = 0
        return content(batches, producer_id, epoch)

    patch.setattr(PartitionBatches, "content", from_zero)


def _no_epoch_after_doubt(patch: pytest.MonkeyPatch) -> None:
    for state in (State.COMMITTING, State.ABORTING):
        patch.setitem(TRANSITIONS[state], Event.ENDED_WITH_LATE_REQUEST, State.READY)


def _doubtful_commit_is_done_again(patch: pytest.MonkeyPatch) -> None:
    def begin_again(core: TransactionCore) -> None:
        core._become(Event.DOUBTFUL)
        core._begin_again(0.0)

    patch.setattr(TransactionCore, "_doubtful", begin_again)


def _offsets_before_records_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    requests = TransactionCore.requests

    def records_are_done(core: TransactionCore, now: float) -> list[TransactionRequest]:
        outgoing = requests(core, now)
        transaction = core._transaction
        if core.state is State.PRODUCING and transaction is not None and transaction.offsets:
            core._become(Event.OFFSETS_LEFT)
        return outgoing

    patch.setattr(TransactionCore, "requests", records_are_done)


def _end_before_offsets_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    received = TransactionCore.response_received

    def offsets_are_done(core: TransactionCore, *arguments: Any) -> None:
        received(core, *arguments)
        if core.state is State.OFFSETS:
            core._become(Event.WRITTEN)

    patch.setattr(TransactionCore, "response_received", offsets_are_done)


def _no_epoch_after_late_offsets(patch: pytest.MonkeyPatch) -> None:
    replied = TransactionCore._group_replied

    def nothing_is_late(core: TransactionCore, *arguments: Any) -> None:
        late = core._has_late_request
        replied(core, *arguments)
        core._has_late_request = late

    patch.setattr(TransactionCore, "_group_replied", nothing_is_late)


def _aborted_is_taken_for_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        COMMIT_ERRORS_IMPLICIT,
        ErrorCode.invalid_txn_state,
        Action.DONE,
    )


@pytest.mark.parametrize(
    "leave_out",
    [
        _numbers_begin_anew,
        _no_epoch_after_doubt,
        _doubtful_commit_is_done_again,
        _aborted_is_taken_for_committed,
        _offsets_before_records_are_acknowledged,
        _end_before_offsets_are_acknowledged,
        _no_epoch_after_late_offsets,
    ],
)
def test_the_schedules_notice_a_rule_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, leave_out: object
) -> None:
    assert callable(leave_out)
    leave_out(monkeypatch)
    for seed in range(300):
        for version in (1, 2):
            try:
                run_schedule(version, seed)
            except AssertionError:
                return
    pytest.fail("no schedule notices it")
