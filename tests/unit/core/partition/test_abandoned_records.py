"""Records that have ended without being done, when their partition goes on after all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.model import Record


def member() -> ScriptedGroup:
    group = ScriptedGroup(commit_mode="ack", auto_offset_reset="earliest")
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    return group


def read(group: ScriptedGroup, count: int) -> list[Record]:
    """The next records; a fetch that waits for other partitions takes half a second."""
    records: list[Record] = []
    deadline = group.now + 2
    while len(records) < count:
        assert group.now < deadline, records
        records.extend(group.step().records)
        group.advance(0.1)
    return records


def test_a_withdrawn_revoke_reads_again_what_was_abandoned_meanwhile() -> None:
    group = member()
    group.produce(1, 3)
    first, second, third = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.core.is_revoking(tp(1))
    group.complete(first)
    group.core.completion_tracker.abandon_all(group.now, [second])
    assert group.poll() is None  # the third one holds it
    group.rebalance()
    group.rejoin(0, 1)
    assert not group.core.is_revoking(tp(1))
    (again,) = read(group, 1)
    assert again.offset == 1, "the third one is still in flight, and not returned twice"
    assert group.complete(third)
    assert group.complete(again)
    assert group.answer_commit() == {tp(1): 1}
    group.advance(2)
    assert group.committing() == {tp(1): 3}


def test_a_withdrawn_revocation_without_abandoned_records_resumes_at_its_position() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.complete(first)
    assert group.poll() is None
    group.rebalance()
    group.rejoin(0, 1)
    group.produce(1)
    assert [record.offset for record in read(group, 1)] == [2]
    assert group.complete(second)


def test_a_resumed_partition_reads_again_what_was_abandoned_while_it_was_paused_alone() -> None:
    group = member()
    group.produce(0, 3)
    first, second, third = group.step().records
    group.core.pause([tp(0)])
    group.complete(first)
    group.core.completion_tracker.abandon_all(group.now, [second])
    group.complete(third)
    group.produce(0)
    group.advance(1)
    assert group.poll() is None, "it is paused"
    group.core.resume(group.now, [tp(0)])
    assert [record.offset for record in read(group, 2)] == [1, 3]
    group.advance(2)
    assert group.poll() is None, "the third one is done"


def test_a_paused_partition_with_an_abandoned_record_is_released_with_what_is_done() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.core.pause([tp(1)])
    group.complete(first)
    group.core.completion_tracker.abandon_all(group.now, [second])
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.poll() is None
    assert group.answer_commit()[tp(1)] == 1
    assert group.assigned == orders(0)


def test_a_withdrawn_revocation_reads_the_last_record_again_if_it_was_abandoned() -> None:
    group = member()
    group.produce(1, 2)
    first, second = group.step().records
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.core.completion_tracker.abandon_all(group.now, [second])
    group.rebalance()
    group.rejoin(0, 1)
    group.produce(1)
    assert [record.offset for record in read(group, 2)] == [1, 2]
    assert group.complete(first)
