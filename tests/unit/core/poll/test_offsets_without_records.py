"""Control batches and aborted transactions: positions, commits and steps move past them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.partition.test_abandoned_records import SingleRecords
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

IDLE = 0.3
INTERVAL = 0.2


def member(*numbers: int, **options: Unpack[ConsumerOptions]) -> ScriptedGroup:
    options.setdefault("commit_interval", INTERVAL)
    group = ScriptedGroup(**options)
    group.become_member(*(numbers or (0,)))
    group.pulse = ErrorCode.none
    return group


def caught_up(**options: Unpack[ConsumerOptions]) -> ScriptedGroup:
    """A member that has read, completed and committed three records, and waits for more."""
    group = member(**options)
    group.produce(0, 3)
    assert len(group.step().records) == 3
    assert group.poll() is None
    group.advance(IDLE)
    assert group.respond_to_commit() == {tp(0): 3}
    return group


def test_a_control_batch_alone_moves_position_lag_and_committed_offset() -> None:
    group = caught_up()
    group.end_transaction(0)
    assert group.core.position(tp(0)) == 4
    assert group.core.seeking.lag() == {tp(0): 0}
    group.advance(IDLE)
    assert group.committing() == {tp(0): 4}


def test_a_control_batch_alone_is_committed_for_handlers() -> None:
    group = member()
    group.core.poll_for_handlers()
    group.core.returned_records.track(one_by_one=True)
    group.produce(0, 1)
    (record,) = group.step().records
    assert group.poll() is None
    group.end_transaction(0)
    assert group.core.position(tp(0)) == 2
    group.advance(IDLE)
    assert group.respond_to_commit() == {tp(0): 0}, "the record before is not completed"
    group.complete(record)
    group.advance(IDLE)
    assert group.committing() == {tp(0): 2}


def test_a_final_commit_includes_a_control_batch() -> None:
    group = caught_up()
    group.end_transaction(0)
    group.close()
    assert group.committing() == {tp(0): 4}


def test_a_released_partition_is_committed_up_to_its_control_batch() -> None:
    group = caught_up()
    group.end_transaction(0)
    group.rebalance()
    group.rejoin()
    result = group.poll()
    assert result is not None
    assert result.to_be_revoked == orders(0)
    assert group.poll() is None
    assert group.committing() == {tp(0): 4}


def test_a_step_without_timeout_ends_when_a_position_has_passed_a_control_batch() -> None:
    group = caught_up()
    assert group.poll(until_moved=True) is None
    group.end_transaction(0)
    assert group.woken
    result = group.poll(until_moved=True)
    assert result is not None
    assert not result.records
    assert group.poll(until_moved=True) is None, "it has said so"


def test_a_control_batch_that_comes_while_a_batch_is_processed_ends_the_next_step() -> None:
    group = member()
    group.produce(0, 3)
    assert len(group.step().records) == 3
    group.end_transaction(0)
    result = group.poll(until_moved=True)
    assert result is not None
    assert not result.records
    assert group.core.position(tp(0)) == 4


def test_a_step_with_a_timeout_waits_for_records() -> None:
    group = caught_up()
    group.end_transaction(0)
    assert group.poll() is None
    group.produce(0, 1)
    result = group.poll()
    assert result is not None
    assert [record.offset for record in result.records] == [4]


def test_a_manual_commit_includes_a_control_batch() -> None:
    group = member(commit_mode="manual")
    group.produce(0, 3)
    assert len(group.step().records) == 3
    group.end_transaction(0)
    assert group.poll(until_moved=True) is not None
    group.core.commit(group.now)
    assert group.committing() == {tp(0): 4}


def test_records_that_an_iterator_holds_are_not_passed_with_a_control_batch() -> None:
    group = member()
    group.produce(0, 3)
    reader = SingleRecords(group)
    assert reader.take() == 0
    group.end_transaction(0)
    assert group.core.position(tp(0)) == 1
    assert reader.take() == 1
    group.advance(IDLE)
    assert group.committing() == {tp(0): 1}


@pytest.mark.parametrize("comes_before", [True, False])
def test_records_that_an_iterator_gave_back_are_not_passed_with_a_control_batch(
    comes_before: bool,
) -> None:
    group = member()
    group.produce(0, 3)
    reader = SingleRecords(group)
    assert reader.take() == 0
    if comes_before:
        group.end_transaction(0)
    # It stops the iterator, which gives back what it has not returned.
    group.core.seeking.pause(group.now, [tp(0)])
    if not comes_before:
        group.end_transaction(0)
    assert group.core.position(tp(0)) == 1
    group.core.seeking.resume(group.now, [tp(0)])
    assert [reader.take(), reader.take()] == [1, 2]
    assert group.core.position(tp(0)) == 4
    reader.step()
    assert group.core.offset_to_commit(tp(0)) == 4
