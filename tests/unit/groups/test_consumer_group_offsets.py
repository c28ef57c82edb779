"""``asyncrevoke groups reset-offsets`` and ``delete`` of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kio.schema.errors import ErrorCode
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import FakeBrokers, classic_member

from asyncrevoke.client.groups.changes import consumer_offsets
from asyncrevoke.client.groups.changes.deletion import delete_group
from asyncrevoke.client.groups.changes.reset_plan import apply_reset, plan_reset
from asyncrevoke.client.groups.errors import CoordinatorUnavailableError, GroupsError, NoGroupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def empty(brokers: FakeBrokers) -> FakeBrokers:
    """A classic group without members, which has committed offsets of two of four partitions."""
    brokers.state = "Empty"
    brokers.log_start = 3
    return brokers


async def test_offsets_are_committed_for_the_partitions_that_the_group_has_offsets_of(
    empty: FakeBrokers,
) -> None:
    plan = await plan_reset(empty, "billing", {}, "earliest")
    assert (plan.type, plan.members) == ("classic", 0)
    assert [(m.partition, m.before, m.after) for m in plan.moves] == [(0, 10, 3), (1, 20, 3)]
    assert empty.changed == []
    await apply_reset(empty, plan)
    assert empty.changed == [{("orders", 0): 3, ("orders", 1): 3}]


async def test_partitions_that_are_assigned_and_not_committed_are_reset_only_if_named(
    empty: FakeBrokers,
) -> None:
    empty.state, empty.classic = "Stable", (classic_member("one", tp(0), tp(2)),)
    plan = await plan_reset(empty, "billing", {}, "latest")
    assert (plan.members, [move.partition for move in plan.moves]) == (1, [0, 1])
    named = await plan_reset(empty, "billing", {"orders": {2}}, "latest")
    assert [(move.partition, move.before) for move in named.moves] == [(2, None)]


async def test_a_group_that_does_not_exist_gets_offsets_of_named_topics(
    empty: FakeBrokers,
) -> None:
    empty.committed, empty.protocol_type, empty.state = {}, "", "Dead"
    plan = await plan_reset(empty, "billing", {"orders": {1}}, 7)
    assert (plan.type, plan.members) == ("", 0)
    await apply_reset(empty, plan)
    assert empty.changed == [{("orders", 1): 7}]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.unknown_member_id, "'billing' has members: stop them first"),
        (ErrorCode.illegal_generation, "'billing' has members: stop them first"),
        (ErrorCode.group_authorization_failed, "grant READ on the group and its topics"),
        (ErrorCode.topic_authorization_failed, r"of orders-0 \(topic_authorization_failed\)"),
    ],
)
async def test_a_broker_that_refuses_offsets_is_quoted(
    empty: FakeBrokers, code: ErrorCode, sentence: str
) -> None:
    plan = await plan_reset(empty, "billing", {}, "earliest")
    empty.change_error = code
    with pytest.raises(GroupsError, match=sentence):
        await apply_reset(empty, plan)


async def test_partitions_whose_offsets_were_not_set_are_named(empty: FakeBrokers) -> None:
    plan = await plan_reset(empty, "billing", {"orders": None}, "earliest")
    empty.change_errors = {3: ErrorCode.unknown_topic_or_partition}
    empty.unanswered = frozenset((2,))
    with pytest.raises(
        GroupsError,
        match=r"of orders-2 \(the broker did not respond about it\), "
        r"orders-3 \(unknown_topic_or_partition\) were not set",
    ):
        await apply_reset(empty, plan)


async def test_a_coordinator_that_is_loading_is_asked_again(
    empty: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await plan_reset(empty, "billing", {}, "earliest")
    empty.change_error = ErrorCode.coordinator_load_in_progress
    sent = 0

    async def until_loaded(ask: Callable[[], Awaitable[None]]) -> None:
        nonlocal sent
        with pytest.raises(CoordinatorUnavailableError):
            await ask()
        sent, empty.change_error = sent + 1, ErrorCode.none
        await ask()

    monkeypatch.setattr(consumer_offsets, "retry_transient_errors", until_loaded)
    await apply_reset(empty, plan)
    assert sent == 1
    assert len(empty.changed) == 2


async def test_a_group_is_deleted(empty: FakeBrokers) -> None:
    await delete_group(empty, "billing")
    assert empty.changed == [("billing",)]


@pytest.mark.parametrize(
    ("code", "raised", "sentence"),
    [
        (ErrorCode.non_empty_group, GroupsError, "'billing' has members: stop them first"),
        (ErrorCode.group_id_not_found, NoGroupError, "there is no group 'billing'"),
        (ErrorCode.group_authorization_failed, GroupsError, "grant DELETE to this user"),
    ],
)
async def test_a_broker_that_does_not_delete_a_group_is_quoted(
    empty: FakeBrokers, code: ErrorCode, raised: type[GroupsError], sentence: str
) -> None:
    empty.change_error = code
    with pytest.raises(raised, match=sentence):
        await delete_group(empty, "billing")


async def test_a_response_about_another_group_is_an_error(empty: FakeBrokers) -> None:
    empty.answers_about = "shipping"
    with pytest.raises(GroupsError, match="about other groups than 'billing'"):
        await delete_group(empty, "billing")
