"""An offset that was sought is committed, whatever was in flight when it was."""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.protocol.messages import ErrorCode, OffsetCommitRequest


def with_three_done() -> ScriptedGroup:
    """A member that has done the records 0 to 2, of which the broker holds offset 0."""
    group = ScriptedGroup(commit_interval=0.5)
    group.become_member(0)
    group.pulse = ErrorCode.none
    group.produce(0, 3)
    assert len(group.step().records) == 3
    group.step()
    return group


@pytest.mark.parametrize("sought", [0, 1], ids=["to what is committed", "elsewhere"])
def test_commit_after_a_seek_back_waits_for_the_offset_that_was_sought(sought: int) -> None:
    group = with_three_done()
    before = group.core.commit(group.now)
    group.run_until_idle()
    group.core.seek(group.now, tp(0), sought)
    after = group.core.commit(group.now)
    group.run_until_idle()
    assert after not in group.completed
    assert group.respond_to_commit() == {tp(0): 3}
    assert group.completed[before].error is None
    assert after not in group.completed
    assert group.respond_to_commit() == {tp(0): sought}
    assert group.completed[after].error is None


@pytest.mark.parametrize("sought", [0, 1], ids=["to what is committed", "elsewhere"])
def test_an_offset_that_was_sought_is_committed_although_nothing_is_done_beyond_it(
    sought: int,
) -> None:
    group = with_three_done()
    group.core.commit(group.now)
    group.run_until_idle()
    group.core.seek(group.now, tp(0), sought)
    group.run_until_idle()
    assert group.respond_to_commit() == {tp(0): 3}
    group.advance(1.0)
    assert group.respond_to_commit() == {tp(0): sought}
    group.advance(5.0)
    assert not group.sends(OffsetCommitRequest), "it is committed once"
