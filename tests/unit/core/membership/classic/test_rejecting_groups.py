"""A group rejects a member for its assignors: the error names the group's and what is possible."""

from __future__ import annotations

import pytest
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import InconsistentGroupError
from asyncrevoke.client.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    JoinGroupRequest,
)


def sentence(group: ScriptedGroup) -> str:
    with pytest.raises(InconsistentGroupError) as caught:
        group.poll()
    return str(caught.value)


def rejected(
    *assignors: str, assignor: str = "", state: str = "Stable", kind: str = "consumer"
) -> str:
    group = ScriptedGroup(assignors=assignors or ("cooperative-sticky",))
    group.described = DescribeGroupsResponse(
        error=ErrorCode.none, state=state, protocol_type=kind, assignor=assignor
    )
    group.start()
    group.respond_to_join(ErrorCode.inconsistent_group_protocol)
    return sentence(group)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_an_assignor_that_this_library_has_is_to_be_offered_first(assignor: str) -> None:
    text = rejected(assignor=assignor)
    assert f"uses the assignor {assignor!r}, and this member offers cooperative-sticky" in text
    assert f'assignors=["{assignor}", "cooperative-sticky"] joins it' in text
    assert "twice" in text


def test_a_cooperative_group_is_joined_with_its_assignor_alone() -> None:
    text = rejected("range", assignor="cooperative-sticky")
    assert text.endswith(
        "uses the assignor 'cooperative-sticky', and this member offers range: "
        'assignors=["cooperative-sticky"] joins it'
    )


@pytest.mark.parametrize("assignor", ["RoundRobinAssigner", "rack-affinity"])
def test_for_an_assignor_of_another_client_no_restarts_are_advised(assignor: str) -> None:
    text = rejected(assignor=assignor)
    assert f"uses the assignor {assignor!r}" in text
    assert f"an assignor of your own with the name {assignor!r}" in text
    assert "range, roundrobin, sticky, cooperative-sticky" in text
    assert "twice" not in text


def test_a_group_of_another_kind_is_named() -> None:
    text = rejected(kind="connect", assignor="sessioned")
    assert "not of consumers but of 'connect'" in text
    assert "another group_id" in text


def test_a_group_that_only_kip_848_has_is_to_be_joined_by_kip_848() -> None:
    text = rejected(kind="", state="Dead")
    assert "has members that use KIP-848, or is a share group" in text
    assert 'group_protocol="consumer"' in text
    assert "twice" not in text
    # It may have no classic members at all: with the policy "disabled" none may join.
    assert "if other classic members are in it" in text
    assert "group.consumer.migration.policy=bidirectional" in text


def test_while_the_group_rebalances_its_assignor_is_not_known() -> None:
    text = rejected(state="PreparingRebalance")
    assert "offers cooperative-sticky" in text
    assert 'assignors=["roundrobin", "cooperative-sticky"]' in text
    assert "twice" in text


def test_what_brokers_say_is_printed_in_one_short_line() -> None:
    text = rejected(assignor="\n" * 500 + "\x1b[0m")
    assert text.isprintable()
    assert len(text) < 3000


@pytest.mark.parametrize("response", [None, ErrorCode.group_authorization_failed])
def test_a_group_that_cannot_be_described_is_not_waited_for(response: ErrorCode | None) -> None:
    group = ScriptedGroup()
    group.described = None if response is None else DescribeGroupsResponse(error=response)
    group.start()
    group.respond_to_join(ErrorCode.inconsistent_group_protocol)
    if response is None:
        send, request = group.only(DescribeGroupsRequest)
        assert request.group_id == "billing"
        assert send.timeout == 2.0
        group.fail(send, FailureKind.TIMEOUT)
    assert "twice" in sentence(group)
    assert group.phase() is ClassicState.FATAL


def test_partitions_are_lost_when_the_group_is_described() -> None:
    group = ScriptedGroup()
    group.described = None
    group.become_member(0, 1)
    group.rebalance()
    group.respond_to_join(ErrorCode.inconsistent_group_protocol)
    send, _ = group.only(DescribeGroupsRequest)
    assert group.assigned == orders(0, 1)
    group.reply(send, DescribeGroupsResponse(error=ErrorCode.none, assignor="range"))
    assert group.step().lost == orders(0, 1)
    assert "'range'" in sentence(group)
    joins = group.count(JoinGroupRequest)
    group.advance(600.0)
    assert group.count(JoinGroupRequest) == joins


def test_a_consumer_that_closes_does_not_wait_for_the_description() -> None:
    group = ScriptedGroup()
    group.described = None
    group.start()
    group.respond_to_join(ErrorCode.inconsistent_group_protocol)
    group.only(DescribeGroupsRequest)
    call = group.close()
    assert call in group.completed
    assert group.phase() is ClassicState.UNJOINED
