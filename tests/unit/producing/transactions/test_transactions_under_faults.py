"""Random faults of requests: what is visible of each transaction is what its end has said."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from unit.producing.transactions.transaction_brokers import TransactionBrokers
from unit.producing.transactions.transaction_setting import Ends, Setting

from asyncrevoke.client.errors import ProducerFencedError, TransactionError
from asyncrevoke.client.producing.transactions.error_table import COMMIT_ERRORS_IMPLICIT, Action
from asyncrevoke.client.producing.transactions.state_table import TRANSITIONS, Event, State
from asyncrevoke.client.producing.transactions.transaction import PartitionBatches
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.client.producing.transactions.transaction import TransactionRequest

FAULTS = ["lost", "response lost", "late", "unreachable"]
_Values = dict[int, list[bytes]]


def run_schedule(version: int, seed: int) -> None:
    """Twelve transactions, with faults; and one more, without."""
    draw = random.Random(f"{version} {seed}")
    brokers = TransactionBrokers(version)
    setting = Setting(brokers)
    share = draw.choice([0.0, 0.1, 0.3, 0.5])

    def faults(_: TransactionRequest) -> str:
        return draw.choice(FAULTS) if draw.random() < share else "response"

    setting.faults = faults
    ended: list[tuple[Ends, _Values]] = []
    for number in range(12):
        values = {
            partition: [b"%d-%d-%d" % (number, partition, n) for n in range(draw.randint(1, 4))]
            for partition in draw.sample(range(3), draw.randint(1, 3))
        }
        if version == 2 and draw.random() < 0.1:
            setting.at(setting.now + draw.uniform(0.0, 0.02), brokers.expire)
        ends = setting.transaction(values, longest=draw.choice([1.0, 15.0, 40.0]))
        if draw.random() < 0.1:
            setting.at(setting.now + draw.uniform(0.0, 0.05), partial(cancel, setting, ends))
        setting.run()
        assert not isinstance(ends.error, ProducerFencedError), "there is no other producer"
        ended.append((ends, values))
    setting.faults = lambda _: "response"
    last = setting.transaction({0: [b"last"]})
    setting.run()
    assert last.error is None
    setting.settle()
    for ends, values in ended:
        check(ends, values, setting.visible())
    for log in brokers.logs:
        assert not [batch for batch in log.batches if batch.committed is None]
        assert [value for value, times in Counter(log.visible).items() if times > 1] == []


def cancel(setting: Setting, ends: Ends) -> None:
    if not (ends.acknowledged or ends.failed):
        setting.core.cancel()


def check(ends: Ends, values: _Values, visible: list[list[bytes]]) -> None:
    """Whether readers see of a transaction what its end has said."""
    count = sum(map(len, values.values()))
    assert ends.acknowledged + ends.failed == count
    assert ends.acknowledged in (0, count)
    seen = sum(value in visible[number] for number, content in values.items() for value in content)
    if ends.error is None:
        assert seen == count
    elif isinstance(ends.error, TransactionError) and ends.error.in_doubt:
        assert seen in (0, count)
    else:
        assert seen == 0


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("block", range(4))
def test_each_transaction_is_visible_as_its_end_was_reported(version: int, block: int) -> None:
    for seed in range(75 * block, 75 * (block + 1)):
        run_schedule(version, seed)


def _numbers_begin_anew(patch: pytest.MonkeyPatch) -> None:
    start = PartitionBatches.start

    def from_zero(batches: PartitionBatches, producer_id: int, epoch: int) -> bytearray:
        if not batches.acknowledged:
            batches.number = 0
        return start(batches, producer_id, epoch)

    patch.setattr(PartitionBatches, "start", from_zero)


def _no_epoch_after_doubt(patch: pytest.MonkeyPatch) -> None:
    for state in (State.COMMITTING, State.ABORTING):
        patch.setitem(TRANSITIONS[state], Event.ENDED_WITH_LATE_REQUEST, State.READY)


def _doubtful_commit_is_done_again(patch: pytest.MonkeyPatch) -> None:
    def begin_again(core: TransactionCore) -> None:
        core._become(Event.DOUBTFUL)
        core._begin_again()

    patch.setattr(TransactionCore, "_doubtful", begin_again)


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
