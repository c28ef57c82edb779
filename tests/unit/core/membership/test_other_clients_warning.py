"""A member with processing="exactly_once" warns of other clients' members that it can tell."""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, foreign

WARNING = "members of other clients are in a group with processing='exactly_once'"


def led(group: ScriptedGroup, *others: str) -> list[dict[str, object]]:
    """What the leader of a group with these other members logs of them."""
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=tuple(foreign(name) for name in others))
    return [emit.fields for emit in group.named(WARNING)]


@pytest.mark.parametrize("eager", [False, True])
def test_the_leader_names_the_first_members_of_other_clients(*, eager: bool) -> None:
    group = ScriptedGroup(eager=eager, processing="exactly_once")
    (warning,) = led(group, *(f"java-{number}" for number in range(7)))
    assert warning["members"] == tuple(f"java-{number}" for number in range(5))
    assert warning["count"] == 7


def test_the_same_members_are_named_once() -> None:
    group = ScriptedGroup(processing="exactly_once")
    assert len(led(group, "java")) == 1
    group.respond_to_sync(tp(0), led_by_us=True)
    for others in (("java",), ("java", "aiokafka")):
        group.rebalance()
        group.respond_to_join(leads=True, others=tuple(map(foreign, others)))
        group.respond_to_sync(tp(0), led_by_us=True)
    assert [emit.fields["count"] for emit in group.named(WARNING)] == [1, 2]


@pytest.mark.parametrize(("led_by_us", "leaders"), [(False, [("another",)]), (True, [])])
def test_a_member_names_the_leader_of_another_client(
    *, led_by_us: bool, leaders: list[tuple[str, ...]]
) -> None:
    group = ScriptedGroup(processing="exactly_once")
    group.start()
    group.give_id()
    group.respond_to_join(leader="another")
    group.respond_to_sync(tp(0), led_by_us=led_by_us)
    assert [emit.fields["members"] for emit in group.named(WARNING)] == leaders


def test_a_coordinator_that_assigns_is_no_other_client() -> None:
    group = ScriptedGroup(processing="exactly_once")
    group.start()
    group.give_id()
    group.respond_to_join(leader="")
    group.respond_to_sync(tp(0))
    assert not group.named(WARNING)


def test_a_group_that_handles_at_least_once_has_no_warning() -> None:
    assert led(ScriptedGroup(), "java") == []
