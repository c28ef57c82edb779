"""The limiter of calls, under any sequence of calls."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, cast
from unittest.mock import create_autospec

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scripted_runner import ScriptedClock
from unit.handlers.scripted_source import ORDERS, busy_lanes, record

from asyncrevoke import RateLimit
from asyncrevoke.handlers.scheduling.backlog import Backlog
from asyncrevoke.handlers.scheduling.handler_ordering import HandlerLimiter
from asyncrevoke.handlers.scheduling.lanes import LaneQueue

if TYPE_CHECKING:
    import asyncio

    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


# Made once: it looks at each method of the class.
BACKLOG = create_autospec(Backlog)


@settings(max_examples=200)
@given(st.data())
def test_any_sequence_of_calls_keeps_both_limits_and_loses_nothing(data: st.DataObject) -> None:
    clock = ScriptedClock()
    most = data.draw(st.sampled_from([None, 1, 3]))
    rate = data.draw(st.sampled_from([None, RateLimit(1, per=0.3), RateLimit(3, per=1.0)]))
    lanes = LaneQueue("key")

    BACKLOG.reset_mock()
    BACKLOG.limiter_permits.side_effect = lanes.queue_permitted
    limiter = HandlerLimiter(cast("asyncio.AbstractEventLoop", clock), most, rate, BACKLOG)
    running: list[Entry] = []
    began: list[float] = []
    queued: list[Item] = []
    offset = 0

    def take() -> None:
        if (entry := lanes.take()) is not None:
            queued.remove(entry[1])
            running.append(entry)
            began.append(clock.now)
        assert most is None or len(running) <= most
        if rate is not None:
            window = [at for at in began if at + rate.per > clock.now]
            assert len(window) <= rate.calls

    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["put", "take", "take", "done", "again", "wait", "drain"])):
            case "put":
                keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=5))
                new = [record(offset + i, key) for i, key in enumerate(keys)]
                offset += len(new)
                lanes.put(ORDERS, new, None, limiter)
                queued += new
            case "take":
                take()
            case "done" if running:
                lanes.free_lane(running.pop(data.draw(st.integers(0, len(running) - 1))))
            case "again" if running:
                entry = running.pop()
                lanes.free_limiter(entry)
                lanes.requeue(entry)
                queued.append(entry[1])
            case "wait":
                clock.advance(data.draw(st.sampled_from([0.1, 0.5, 2.0])))
            case "drain":
                first = data.draw(st.integers(0, 20))
                for dropped in lanes.drop_unstarted_from(
                    ORDERS, first, lambda each: each.offset, lambda _: False
                ):
                    queued.remove(dropped)
            case _:
                pass
        assert lanes.queued == len(queued)
    for _ in range(1000):
        if not (queued or running):
            break
        take()
        if running and not lanes.count_ready(1):
            lanes.free_lane(running.pop())
        elif not lanes.count_ready(1):
            clock.advance(0.1)
    assert not queued
    assert not running
    assert busy_lanes(lanes) == 0
    assert clock.timers == []


def test_an_idle_key_costs_no_memory() -> None:
    lanes = LaneQueue("key")

    def pass_through(first: int) -> None:
        for start in range(first, first + 20_000, 500):
            lanes.put(ORDERS, [record(i, b"key %d" % i) for i in range(start, start + 500)])
            while (entry := lanes.take()) is not None:
                lanes.free_lane(entry)

    pass_through(0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pass_through(20_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert busy_lanes(lanes) == 0
    assert grown < 20_000, "less than a byte for each key"
