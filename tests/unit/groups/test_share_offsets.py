"""``asyncrevoke groups reset-offsets`` and ``delete-offsets`` of share groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import FakeBrokers, classic_member, share_member

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import offsets as command
from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.changes.reset_plan import (
    OffsetMove,
    ResetPlan,
    apply_reset,
    plan_reset,
)
from asyncrevoke.client.groups.changes.share_offsets import delete_offsets, offsets_of_topics
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError, UnsupportedRequestError

if TYPE_CHECKING:
    from asyncrevoke.client.groups.changes.reset_plan import Target


@pytest.fixture
def empty(brokers: FakeBrokers) -> FakeBrokers:
    """A share group without members, with start offsets 0 and 20 in two of four partitions."""
    brokers.share = ()
    brokers.state = "Empty"
    brokers.log_start = 3
    return brokers


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ("earliest", 3),
        ("latest", 25),
        (3, 3),
        (25, 25),
        (datetime.fromtimestamp(1, UTC), 12),
    ],
)
async def test_the_partitions_that_the_group_has_offsets_of_are_set(
    empty: FakeBrokers, target: Target, after: int
) -> None:
    plan = await plan_reset(empty, "billing", {}, target)
    assert (plan.group, plan.members) == ("billing", 0)
    assert [(m.partition, m.before, m.after) for m in plan.moves] == [(0, 0, after), (1, 20, after)]
    assert empty.changed == []
    await apply_reset(empty, plan)
    assert empty.changed == [{("orders", 0): after, ("orders", 1): after}]


async def test_a_time_after_all_records_is_the_end_of_the_log(empty: FakeBrokers) -> None:
    empty.at_second = -1
    plan = await plan_reset(empty, "billing", {}, datetime.fromtimestamp(1, UTC))
    assert {move.after for move in plan.moves} == {25}


async def test_named_topics_and_partitions_are_set_also_without_an_offset_before(
    empty: FakeBrokers,
) -> None:
    everything = await plan_reset(empty, "billing", {"orders": None}, "latest")
    assert [(m.partition, m.before) for m in everything.moves] == [
        (0, 0),
        (1, 20),
        (2, None),
        (3, None),
    ]
    some = await plan_reset(empty, "billing", {"orders": {3, 0}}, "latest")
    assert [move.partition for move in some.moves] == [0, 3]


@pytest.mark.parametrize("offset", [2, 26, 10**17])
async def test_an_offset_that_is_not_in_the_log_is_refused(empty: FakeBrokers, offset: int) -> None:
    with pytest.raises(GroupsError, match=rf"orders-0 has the offsets 3 to 25, and not {offset}"):
        await plan_reset(empty, "billing", {}, offset)


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        ({"payments": None}, "there is no topic 'payments'"),
        ({"orders": {4}}, "has 4 partitions, and no orders-4"),
    ],
)
async def test_a_topic_or_partition_that_does_not_exist_is_refused(
    empty: FakeBrokers, topics: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(GroupsError, match=sentence):
        await plan_reset(empty, "billing", topics, "latest")


async def test_a_partition_without_a_leader_that_responds_stops_the_reset(
    empty: FakeBrokers,
) -> None:
    empty.dead_leader = 2
    with pytest.raises(GroupsError, match="orders-1 has no leader that responds"):
        await plan_reset(empty, "billing", {}, "latest")


async def test_a_group_without_offsets_needs_topics(empty: FakeBrokers) -> None:
    empty.share_offsets = {}
    with pytest.raises(GroupsError, match="has no offsets yet: name the topics"):
        await plan_reset(empty, "billing", {}, "latest")


async def test_offsets_of_topics_are_deleted_from_share_groups_alone(brokers: FakeBrokers) -> None:
    brokers.classic = (classic_member("one", tp(0)),)
    with pytest.raises(GroupsError, match="'billing' is no share group but a classic group"):
        await offsets_of_topics(brokers, "billing", ["orders"])
    assert brokers.changed == []


async def test_without_a_group_and_topics_nothing_is_reset(brokers: FakeBrokers) -> None:
    brokers.committed = {}
    brokers.protocol_type, brokers.state = "", "Dead"
    with pytest.raises(NoGroupError, match="there is no group 'billing'"):
        await plan_reset(brokers, "billing", {}, "latest")
    assert brokers.changed == []


PLAN = ResetPlan(
    group="billing",
    type="share",
    members=0,
    moves=tuple(OffsetMove(topic="orders", partition=n, before=0, after=3) for n in (0, 1)),
)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.non_empty_group, "'billing' has members: stop them first"),
        (ErrorCode.unsupported_version, r"share groups are off in this cluster"),
        (ErrorCode.group_authorization_failed, "not authorized; grant (READ|DELETE) on the group"),
        (ErrorCode.invalid_request, "changing the offsets of group 'billing': .* invalid_request"),
    ],
)
async def test_a_broker_that_refuses_a_change_is_quoted(
    empty: FakeBrokers, code: ErrorCode, sentence: str
) -> None:
    empty.change_error = code
    for refused in (apply_reset(empty, PLAN), delete_offsets(empty, "billing", ["orders"])):
        with pytest.raises(GroupsError, match=sentence):
            await refused


async def test_partitions_and_topics_that_were_not_changed_are_named(empty: FakeBrokers) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    empty.change_errors = {1: unknown, "orders": unknown}
    with pytest.raises(GroupsError, match=r"of orders-1 \(unknown_topic_or_part.*were not set"):
        await apply_reset(empty, PLAN)
    with pytest.raises(GroupsError, match=r"of orders \(unknown_topic_or.*were not deleted"):
        await delete_offsets(empty, "billing", ["orders"])


async def test_members_are_counted_before_a_reset_and_refused_before_a_deletion(
    empty: FakeBrokers,
) -> None:
    empty.share = (share_member("one", 0),)
    assert (await plan_reset(empty, "billing", {}, "latest")).members == 1
    with pytest.raises(GroupsError, match="has members: stop them first"):
        await offsets_of_topics(empty, "billing", ["orders"])


async def test_only_topics_of_the_group_can_be_deleted_from_it(empty: FakeBrokers) -> None:
    found = await offsets_of_topics(empty, "billing", ["orders"])
    assert [(each.partition, each.start) for each in found] == [(0, 0), (1, 20)]
    with pytest.raises(GroupsError, match="group 'billing' has no offsets of payments"):
        await offsets_of_topics(empty, "billing", ["orders", "payments"])


async def test_a_broker_without_share_groups_is_said_to_be_too_old(empty: FakeBrokers) -> None:
    empty.not_offered = frozenset((requests.ShareGroupDescribeRequest,))
    with pytest.raises(UnsupportedRequestError):
        await offsets_of_topics(empty, "billing", ["orders"])


def test_a_start_beyond_the_end_of_the_log_is_said_with_what_it_skips() -> None:
    from asyncrevoke.client.groups.share_groups import _partition

    ahead = _partition(tp(0), 99, -89, ())
    assert (ahead.start, ahead.lag, ahead.skipped) == (99, 0, 89)
    assert [_partition(tp(0), 9, lag, ()).lag for lag in (-1, 0, 4)] == [None, 0, 4]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reset-offsets", "billing", "--to", "newest"], "--to newest: write now, 2026-11-01"),
        (["reset-offsets", "billing", "--to", "-1"], "or earliest, latest, or an offset"),
        (["reset-offsets", "billing", "--to", "1960-01-01"], "before 1970"),
        (["reset-offsets", "billing", "--to", "9" * 5000], "write now, 2026-11-01"),
        (["reset-offsets", "billing", "orders:", "--to", "0"], "orders:: write TOPIC"),
        (["reset-offsets", "billing", ":1", "--to", "0"], ":1: write TOPIC"),
        (["reset-offsets", "billing", "orders:0,x", "--to", "0"], "orders:0,x: write TOPIC"),
        (["reset-offsets", "billing", "orders:" + "9" * 5000, "--to", "0"], "write TOPIC"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["groups", *arguments])
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_partitions_are_written_after_their_topic() -> None:
    assert command._topic("orders") == ("orders", None)
    assert command._topic("orders:0,12") == ("orders", {0, 12})
