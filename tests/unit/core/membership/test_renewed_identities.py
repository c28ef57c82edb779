"""The identity to send the offsets of an open transaction with, after the coordinator has rejected
their generation or epoch."""

from __future__ import annotations

from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import ErrorCode


def test_a_classic_member_sends_them_with_the_generation_that_has_followed() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    member = group.core.classic
    assert member is not None
    first = member.member_identity
    assert member.renewed_identity(group.now, first) is None, "no join may have changed it"
    group.rebalance()
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert member.renewed_identity(group.now, first) == first, "the response may be on its way"
    group.respond_to_join()
    assert group.phase() is ClassicState.AWAIT_SYNC
    second = member.renewed_identity(group.now, first)
    assert second is not None
    assert second == first._replace(generation=first.generation + 1)
    assert member.renewed_identity(group.now, second) is None
    group.respond_to_sync(tp(0))
    assert member.renewed_identity(group.now, first) == second


def test_a_classic_member_that_was_removed_does_not_send_them_again() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    member = group.core.classic
    assert member is not None
    first = member.member_identity
    group.respond_to_beat(ErrorCode.unknown_member_id)
    assert member.renewed_identity(group.now, first) is None


def test_a_member_of_a_kip848_group_requests_the_present_epoch() -> None:
    group = ScriptedConsumerGroup()
    group.join(0)
    group.advance(0.5)
    group.quiet()
    member = group.core.kip848
    assert member is not None
    first = member.member_identity
    assert member.renewed_identity(group.now, first) == first
    group.advance(0.0)
    group.respond(tp(0), epoch=2)
    second = member.renewed_identity(group.now, first)
    assert second == first._replace(generation=2)
