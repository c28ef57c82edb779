"""Members that commit nothing while records arrive, by repeated descriptions of their group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import FakeBrokers, classic_member
from unit.groups.test_groups_command import shown

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.client.groups.facts import GroupFacts, MemberFacts, PartitionFacts, RebalanceFacts
from asyncrevoke.client.groups.unread import UnreadPartitions, observe_group

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition

PATIENCE = 10.0
# Committed offset, end, owner.
Partition = tuple[int | None, int, str | None]


def group(*partitions: Partition) -> GroupFacts:
    return GroupFacts(
        group="billing",
        type="classic",
        state="Stable",
        assignor="range",
        coordinator="b1:9092",
        epoch=None,
        rebalance=RebalanceFacts(in_progress=False, known=True, held_up_by=(), says=""),
        members=tuple(
            MemberFacts(member_id=name, client_id=name, host="10.0.0.1") for name in ("a", "b")
        ),
        partitions=tuple(
            PartitionFacts(
                topic="orders",
                partition=number,
                committed=committed,
                end=end,
                lag=None if committed is None else end - committed,
                member_id=owner,
            )
            for number, (committed, end, owner) in enumerate(partitions)
        ),
    )


def found(*looks: tuple[float, GroupFacts]) -> list[dict[str, tuple[TopicPartition, ...]]]:
    unread = UnreadPartitions(PATIENCE)
    return [
        {each.member_id: each.partitions for each in unread.look(now, facts)}
        for now, facts in looks
    ]


def test_a_member_that_commits_nothing_while_its_lag_grows_is_reported() -> None:
    assert found(
        (0, group((5, 9, "a"), (5, 9, "b"))),
        (9, group((5, 12, "a"), (8, 12, "b"))),
        (10, group((5, 13, "a"), (8, 13, "b"))),
        (19, group((5, 14, "a"), (8, 14, "b"))),
    ) == [{}, {}, {"a": (tp(0),)}, {"a": (tp(0),), "b": (tp(1),)}]


def test_a_commit_of_any_of_its_partitions_begins_anew() -> None:
    assert found(
        (0, group((5, 9, "a"), (5, 9, "a"))),
        (9, group((5, 12, "a"), (6, 12, "a"))),
        (18, group((5, 14, "a"), (6, 14, "a"))),
        (19, group((5, 15, "a"), (6, 15, "a"))),
    ) == [{}, {}, {}, {"a": (tp(0), tp(1))}]


def test_a_lag_that_does_not_grow_is_not_reported() -> None:
    # A record that is handled for a long time, or none that arrives.
    assert found((0, group((5, 9, "a"))), (60, group((5, 9, "a")))) == [{}, {}]


def test_a_record_that_arrives_late_is_given_the_same_time() -> None:
    assert found(
        (0, group((9, 9, "a"))),
        (600, group((9, 10, "a"))),
        (609, group((9, 11, "a"))),
        (610, group((9, 11, "a"))),
    ) == [{}, {}, {}, {"a": (tp(0),)}]


def test_of_a_partition_without_a_committed_offset_records_that_arrive_count() -> None:
    # Those that are there may be left out by auto_offset_reset="latest".
    assert found(
        (0, group((None, 9, "a"))),
        (20, group((None, 9, "a"))),
        (21, group((None, 10, "a"))),
        (31, group((None, 11, "a"))),
    ) == [{}, {}, {}, {"a": (tp(0),)}]


@pytest.mark.parametrize("between", [(5, 12, "b"), (5, 12, None)])
def test_another_assignment_in_between_begins_anew(between: Partition) -> None:
    assert found(
        (0, group((5, 9, "a"))),
        (9, group(between)),
        (10, group((5, 13, "a"))),
        (19, group((5, 14, "a"))),
    ) == [{}, {}, {}, {}]


class Growing(FakeBrokers):
    """Two members; records arrive in all partitions, and the first member commits."""

    def __init__(self) -> None:
        super().__init__()
        self.speaks_modern = False
        self.committed = {0: 10, 1: 10, 2: 20, 3: 20}
        self.classic = (
            classic_member("reader", tp(0), tp(1)),
            classic_member("sarama", tp(2), tp(3)),
        )

    async def coordinator(self, group: str) -> int:
        self.committed[0] += 1
        self.end += 1
        return await super().coordinator(group)


async def test_a_group_is_observed_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrevoke.client.groups.unread._LOOK_EVERY", 0.01)
    facts = await observe_group(Growing(), "billing", 0.2)
    assert facts.unread is not None
    (unread,) = facts.unread
    assert (unread.member_id, unread.partitions) == ("sarama-id", (tp(2), tp(3)))
    assert 0.1 <= unread.seconds <= 10
    assert "sarama at 10.0.0.6 commits nothing while records arrive" in shown(facts)
    assert "orders-2..3: nothing for 0 s" in shown(facts)


def test_what_was_described_once_says_nothing_about_reading() -> None:
    assert "commit nothing" not in shown(group((5, 9, "a")))


def test_the_command_observes_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def observe(_config: object, *what: object) -> GroupFacts:
        asked.append(what)
        return group()

    monkeypatch.setattr(command, "_observe", observe)
    run = CliRunner().invoke
    assert run(app, ["groups", "billing", "--observe", "20"]).exit_code == 0
    assert asked == [("billing", 20.0)]
    for wrong in (["--observe", "20"], ["billing", "--observe", "9"]):
        assert run(app, ["groups", *wrong]).exit_code == 2
