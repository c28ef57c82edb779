"""What the checker of chaos runs with share groups says of small histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
from chaos.share.share_checker import Window, calls_by_record, check_share_run

from asyncrevoke.cli.demo.group_result import Produced
from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Handling, Started
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.share.share_checker import ShareResult

PLACE = TopicPartition("t", 0)
Event: TypeAlias = Started | Ended | Abandoned


def at(kind: type[Event], member: str, when: float) -> Event:
    assert issubclass(kind, Handling)
    return kind(member=member, topic="t", partition=0, offset=5, key=None, at=when)


ONCE = [at(Started, "a", 1.0), at(Ended, "a", 2.0)]
TWICE = [*ONCE, at(Started, "b", 3.0), at(Ended, "b", 4.0)]
OVERLAPPING = [
    at(Started, "a", 1.0),
    at(Started, "b", 1.5),
    at(Ended, "b", 1.6),
    at(Ended, "a", 2.0),
]


def judged(
    events: Sequence[Event], *windows: Window, died: dict[str, float] | None = None
) -> ShareResult:
    calls = calls_by_record(events, died or {}, 100.0)
    return check_share_run([Produced(PLACE, 5, "k", 0.5)], calls, windows, [])


def test_a_record_that_was_handled_once_is_as_it_should_be() -> None:
    found = judged(ONCE)
    assert not found.faults
    assert (found.lost, found.again, found.most_calls, found.longest_wait) == (0, 0, 1, 1.5)


@pytest.mark.parametrize("events", [[], ONCE[:1], [ONCE[0], at(Abandoned, "a", 2.0)]])
def test_a_record_that_no_call_has_ended_is_lost(events: list[Event]) -> None:
    assert judged(events).lost == 1
    assert judged(events).faults


def test_what_was_handled_comes_again_only_with_a_fault_that_costs_locks() -> None:
    assert judged(TWICE).not_permitted == 1
    assert judged(TWICE, Window(1.5, 2.5, None)).not_permitted == 0
    assert judged(TWICE, Window(1.5, 2.5, "a")).not_permitted == 0
    assert judged(TWICE, Window(1.5, 2.5, "b")).not_permitted == 1, "it was another member's"
    assert judged(TWICE, Window(3.5, 9.0, None)).not_permitted == 1, "it had come before"
    assert judged(TWICE, Window(0.1, 0.9, None)).not_permitted == 1, "it was over"
    late = [*ONCE, at(Started, "b", 60.0), at(Ended, "b", 61.0)]
    assert judged(late, Window(50.0, 59.0, None)).not_permitted == 1, "it was acknowledged"


def test_what_was_not_handled_comes_again_when_its_call_has_ended() -> None:
    cancelled = [
        at(Started, "a", 1.0),
        at(Abandoned, "a", 2.0),
        at(Started, "b", 3.0),
        at(Ended, "b", 4.0),
    ]
    assert judged(cancelled).again == 1
    assert not judged(cancelled).faults
    killed = [at(Started, "a", 1.0), at(Started, "b", 3.0), at(Ended, "b", 4.0)]
    assert not judged(killed, died={"a": 2.0}).faults
    assert judged(killed).at_once == 1


def test_two_calls_at_a_time_are_counted_and_need_a_fault_that_costs_locks() -> None:
    assert judged(OVERLAPPING).not_permitted == 1
    found = judged(OVERLAPPING, Window(1.2, 1.4, None))
    assert (found.at_once, found.not_permitted) == (1, 0)
