"""What a chaos run with a share group must keep, by what its members have written down and what was
acknowledged to the producer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.cli.demo.group_result import Produced

# Seconds from the end of a call to the broker's acknowledgement, on a busy machine.
ACKNOWLEDGED_WITHIN = 2.0

Record: TypeAlias = tuple[TopicPartition, int]


class Call(NamedTuple):
    """One call of a handler. ``ended`` is when it, or its process, ended; ``returned`` whether it
    returned."""

    member: str
    began: float
    ended: float
    returned: bool


class Window(NamedTuple):
    """From when to when a fault may have cost locks, and the one member that it was for; None for
    all of them."""

    begins: float
    ends: float
    member: str | None


class ShareResult(NamedTuple):
    """``faults`` are sentences, none if all is well. ``again``: calls of records that had been
    called before. ``longest_wait``: from the acknowledgement of a record until it was handled."""

    produced: int
    lost: int
    again: int
    not_permitted: int
    at_once: int
    most_calls: int
    longest_wait: float
    faults: Sequence[str]


def calls_by_record(
    events: Iterable[Started | Ended | Abandoned], died: Mapping[str, float], now: float
) -> dict[Record, list[Call]]:
    """The calls of each record, by when they began. ``died`` is when members ended."""
    calls: dict[Record, list[Call]] = defaultdict(list)
    open_calls: dict[tuple[str, Record], float] = {}
    for event in events:
        record = (TopicPartition(event.topic, event.partition), event.offset)
        key = (event.member, record)
        if isinstance(event, Started):
            open_calls[key] = event.at
            continue
        began = open_calls.pop(key)
        calls[record].append(Call(event.member, began, event.at, isinstance(event, Ended)))
    for (member, record), began in open_calls.items():
        calls[record].append(Call(member, began, died.get(member, now), returned=False))
    for each in calls.values():
        each.sort(key=lambda call: call.began)
    return calls


def check_share_run(
    produced: Sequence[Produced],
    calls: Mapping[Record, Sequence[Call]],
    windows: Sequence[Window],
    failures: Sequence[str],
) -> ShareResult:
    """Judge a run.

    Each acknowledged record must have been handled. It may be called again if its call did not
    return, or if a fault that costs locks happened from the time that the call began until the
    next began; two calls may overlap only in the latter case.
    """
    faults = list(failures)
    lost = again = not_permitted = at_once = 0
    longest_wait = 0.0
    for one in produced:
        ends = [call.ended for call in calls.get((one.partition, one.offset), ()) if call.returned]
        if not ends:
            lost += 1
            faults.append(f"lost: {one.partition} offset {one.offset}")
        else:
            longest_wait = max(longest_wait, min(ends) - one.at)
    for record, each in calls.items():
        for call, later in pairwise(each):
            again += 1
            explained = any(
                window.begins <= later.began
                and call.began <= window.ends
                and call.ended >= window.begins - ACKNOWLEDGED_WITHIN
                and window.member in {None, call.member}
                for window in windows
            )
            overlaps = later.began < call.ended
            at_once += overlaps
            if not explained and (call.returned or overlaps):
                not_permitted += 1
                faults.append(f"again without a reason: {record[0]} offset {record[1]}: {each}")
    return ShareResult(
        len(produced),
        lost,
        again,
        not_permitted,
        at_once,
        max(map(len, calls.values()), default=0),
        longest_wait,
        faults,
    )
