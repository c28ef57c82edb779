"""A group on the page, by what its brokers tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from unit.dashboard.table_rows import table_rows

from asyncrevoke import ConsumerConfig, TopicPartition
from asyncrevoke.client.groups.facts import GroupFacts, MemberFacts, PartitionFacts, RebalanceFacts
from asyncrevoke.web.dashboard.group_watch import GroupWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def told(
    owners: Sequence[str | None], releasing: Sequence[TopicPartition] = (), state: str = "Stable"
) -> GroupFacts:
    members = tuple(
        MemberFacts(
            member_id=name,
            client_id=name,
            host="10.0.0.1",
            releasing=tuple(releasing) if name == "a" else (),
        )
        for name in ("a", "b")
    )
    return GroupFacts(
        group="billing",
        type="classic",
        state=state,
        assignor="cooperative-sticky",
        coordinator="kafka-1:9092",
        epoch=None,
        rebalance=RebalanceFacts(in_progress=False, known=True, held_up_by=(), says="as told"),
        members=members,
        partitions=tuple(
            PartitionFacts(topic="orders", partition=n, committed=10, end=15, lag=5, member_id=who)
            for n, who in enumerate(owners)
        ),
    )


def watching() -> tuple[GroupWatch, History]:
    history = History("billing")
    return GroupWatch(ConsumerConfig(), "billing", history), history


def owners(history: History, partition: TopicPartition) -> list[tuple[str, str]]:
    return [(span.owner, span.state) for span in history.lane(partition)]


def test_a_partition_goes_from_one_member_over_draining_to_the_other() -> None:
    watch, history = watching()
    watch.look(told(["a", "b"]))
    watch.look(told(["a", "b"], releasing=[FIRST]))
    assert [(p.partition, p.owner) for p in history.pending["billing"]] == [(FIRST, "a 10.0.0.1")]
    watch.look(told(["b", "b"]))
    assert history.pending["billing"] == ()
    assert owners(history, FIRST) == [
        ("a 10.0.0.1", "held"),
        ("a 10.0.0.1", "draining"),
        ("b 10.0.0.1", "held"),
    ]
    newest = history.samples("billing", 0, float("inf"))[-1]
    assert (newest.records, newest.lag, newest.state, newest.members) == (20, 10, "Stable", 2)
    assert (newest.in_flight, newest.oldest, newest.dead_letters) == (None, None, None)


def test_what_brokers_do_not_report_is_not_on_the_page() -> None:
    watch, history = watching()
    watch.look(told(["a", None]))
    page = parts(history, 0)
    for unknown in "in flight", "dead letters", "oldest":
        assert unknown not in page["figures"] + page["places"]
    assert "<dt>members</dt><dd>2</dd>" in page["figures"]
    assert "<dt>state</dt><dd>Stable</dd>" in page["figures"]
    assert "<dt>lag</dt><dd>10</dd>" in page["figures"]
    assert ["orders-1", "nobody", "5", "10"] in table_rows(page["places"])


def test_a_heartbeat_response_without_assignment_keeps_the_last_one() -> None:
    watch, history = watching()
    watch.look(told(["a", "b"]))
    watch.look(told([None, None], state="PreparingRebalance"))
    assert owners(history, SECOND) == [("b 10.0.0.1", "held")]
    assert [note.text for note in history.notes(float("inf"), 2)] == [
        "PreparingRebalance: as told",
        "Stable: as told",
    ]


def test_a_member_that_commits_nothing_while_records_arrive_is_noted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, history = watching()
    now = 0.0
    monkeypatch.setattr(history, "clock", lambda: now)
    for look in range(80):
        now = look / 2
        facts = told(["a", "b"])
        # The member of the second partition commits each second look.
        offsets = {0: 10, 1: 10 + look // 2}
        partitions = [
            structs.replace(part, committed=offsets[part.partition], end=20 + look, lag=5)
            for part in facts.partitions
        ]
        watch.look(structs.replace(facts, partitions=tuple(partitions)))
    notes = [note.text for note in history.notes(now, 100) if "commits nothing" in note.text]
    assert len(notes) == 1
    assert "a at 10.0.0.1 commits nothing while records arrive in its partitions" in notes[0]
    assert "b at" not in notes[0]
