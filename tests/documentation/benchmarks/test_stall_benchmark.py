"""The bookkeeping of the stall benchmark: what it measures is only as good as this."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.rebalance_stall import Measured, longest_gap
from benchmarks.workload.stall_work import Work


def work_with(drain: float) -> tuple[Work, list[object]]:
    told: list[object] = []
    return Work(drain, reading=told.append, held_all=lambda: told.append("held")), told


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([], 10.0),  # nothing at all came
        ([1.0, 2.0, 9.0], 7.0),
        ([1.0, 4.0], 6.0),  # what is still missing at the end counts
        ([-5.0, 7.0, 12.0], 7.0),  # what lies outside does not
    ],
)
def test_the_longest_gap_lies_within_the_window(times: list[float], gap: float) -> None:
    assert longest_gap(times, 0.0, 10.0) == gap


def test_a_stall_is_what_comes_on_top_of_the_gaps_there_were_before() -> None:
    def stall(gap: float) -> float:
        return Measured("x", 0.0, gap, 0.25, 1.0, kept=3, moved=3).stall

    assert stall(2.25) == 2.0
    assert stall(0.125) == 0.0


async def test_a_held_record_is_done_only_so_long_after_its_partition_was_asked_back() -> None:
    work, told = work_with(0.05)
    done: list[int] = []
    work.take(0, 10, lambda: done.append(10))
    work.take(1, 20)
    work.hold()
    work.take(0, 11, lambda: done.append(11))
    work.take(0, 12, lambda: done.append(12))  # only one is held
    work.take(1, 21)
    assert (done, told) == ([10, 12], [0, 1, "held"])
    assert work.committable([0, 1, 2]) == {0: 11, 1: 21}

    asked = asyncio.get_running_loop().time()
    work.asked_back([0])
    await work.drained([0])
    assert asyncio.get_running_loop().time() - asked >= 0.05 - 0.001
    assert done == [10, 12, 11]
    assert work.committable([0, 1]) == {0: 13, 1: 21}


async def test_nothing_is_waited_for_where_nothing_is_held() -> None:
    work, _ = work_with(60.0)
    work.take(0, 10)
    await asyncio.wait_for(work.drained([0, 1]), 1)


async def test_finishing_ends_all_work_and_holds_no_more() -> None:
    work, _ = work_with(60.0)
    work.take(0, 1)
    work.hold()
    done: list[int] = []
    work.take(0, 2, lambda: done.append(2))
    work.finish()
    work.take(0, 3, lambda: done.append(3))
    assert done == [2, 3]
    await asyncio.wait_for(work.drained([0]), 1)
