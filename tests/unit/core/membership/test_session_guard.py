"""What steps return while nobody knows whether the group still takes us for a member."""

from __future__ import annotations

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.protocol.messages import ErrorCode

PAUSED = "no records until the coordinator confirms the membership"


def unconfirmed_member() -> ScriptedGroup:
    group = ScriptedGroup(session_timeout=6.0, on_unconfirmed_membership="pause")
    group.become_member(0)
    for _ in range(5):
        group.fail(group.beat(), FailureKind.TIMEOUT)
        group.advance(2.5)
    return group


def test_what_was_fetched_waits_for_the_coordinator() -> None:
    group = unconfirmed_member()
    group.produce(0)
    for _ in range(20):
        assert not group.step().records
        group.advance(0.1)
    assert len(group.named(PAUSED)) == 1
    assert group.assigned == orders(0)
    assert group.phase() is ClassicState.STABLE


def test_a_waiting_step_returns_it_as_soon_as_the_membership_is_confirmed() -> None:
    group = unconfirmed_member()
    group.produce(0)
    assert group.core.poll(group.now) is None
    group.advance(1.0)
    assert group.core.poll(group.now) is None
    woken = group.woken
    group.respond_to_beat()
    assert group.woken > woken
    result = group.core.poll(group.now)
    assert result is not None
    assert len(result.records) == 1
    assert not result.lost


def test_a_session_that_is_not_over_holds_nothing() -> None:
    group = ScriptedGroup(session_timeout=6.0, on_unconfirmed_membership="pause")
    group.become_member(0)
    group.fail(group.beat(), FailureKind.TIMEOUT)
    group.advance(2.5)
    assert group.receive(0)
    assert not group.named(PAUSED)


def test_a_member_by_kip_848_waits_too() -> None:
    group = ScriptedConsumerGroup(group_protocol="consumer", on_unconfirmed_membership="pause")
    group.join(0)
    for _ in range(20):
        group.fail(group.next_beat(), FailureKind.TIMEOUT)
        group.advance(3.0)
    group.produce(0)
    assert not group.step().records
    group.respond(tp(0))
    assert group.receive(0)
    assert group.assigned == orders(0)


def test_a_rebalance_that_takes_longer_than_the_session_holds_nothing() -> None:
    group = ScriptedGroup(
        session_timeout=6.0, on_unconfirmed_membership="pause", assignors=("cooperative-sticky",)
    )
    group.become_member(0)
    group.rebalance()
    # The others take their time: the JoinGroup is parked, and heartbeats get responses.
    for _ in range(12):
        group.respond_to_beat(ErrorCode.rebalance_in_progress)
        group.advance(1.0)
    assert group.receive(0)
    assert not group.named(PAUSED)


def test_by_default_what_was_fetched_waits_for_the_coordinator() -> None:
    assert ConsumerConfig().on_unconfirmed_membership == "pause"


def test_there_is_no_third_choice() -> None:
    with pytest.raises(ConfigError, match="on_unconfirmed_membership"):
        ConsumerConfig.from_options(on_unconfirmed_membership="stop")
