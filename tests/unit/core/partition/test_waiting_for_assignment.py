"""A call that waits until partitions are assigned."""

from __future__ import annotations

from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.errors import ConsumerClosedError, FatalError


def test_it_returns_what_the_group_assigns_and_takes_no_record() -> None:
    group = ScriptedGroup(auto_offset_reset="earliest")
    group.produce(0, 3)
    call = group.core.wait_for_assignment(group.now)
    group.run_until_idle()
    assert call not in group.completed
    group.become_member(0, 1)
    assert group.completed[call].result == orders(0, 1)
    assert group.core.position(tp(0)) == 0
    result = group.poll(expired=True)
    assert result is not None
    assert [record.offset for record in result.records] == [0, 1, 2]


def test_it_returns_at_once_if_there_are_partitions() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    call = group.core.wait_for_assignment(group.now)
    group.run_until_idle()
    assert group.completed[call].result == orders(0)


def test_it_waits_while_other_members_have_all_partitions() -> None:
    group = ScriptedGroup()
    group.become_member()
    call = group.core.wait_for_assignment(group.now)
    group.run_until_idle()
    assert call not in group.completed
    group.rebalance()
    group.rejoin(1)
    assert group.completed[call].result == orders(1)


def test_closing_ends_it() -> None:
    group = ScriptedGroup()
    group.become_member()
    call = group.core.wait_for_assignment(group.now)
    group.close()
    group.advance(60.0)
    assert isinstance(group.completed[call].error, ConsumerClosedError)


def test_a_fatal_error_ends_it_and_each_later_one() -> None:
    group = ScriptedGroup()
    group.become_member()
    before = group.core.wait_for_assignment(group.now)
    error = FatalError("over")
    group.core.membership.fail(group.now, error)
    after = group.core.wait_for_assignment(group.now)
    group.run_until_idle()
    assert [group.completed[call].error for call in (before, after)] == [error, error]
