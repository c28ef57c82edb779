from __future__ import annotations

import json

import pytest

from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.engines import stages, tasks, unfinished_ranges
from asyncrevoke.spark.replays.run import _stored_plan


def ranges(*spans: tuple[int, int, int]) -> list[OffsetRange]:
    return [OffsetRange("t", *span) for span in spans]


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ([], [(0, 0, 100)]),
        ([(0, 0, 100)], []),
        ([(0, 0, 40)], [(0, 40, 100)]),
        ([(0, 40, 60)], [(0, 0, 40), (0, 60, 100)]),
        ([(0, 60, 80), (0, 0, 20)], [(0, 20, 60), (0, 80, 100)]),
        ([(1, 0, 100)], [(0, 0, 100)]),
    ],
)
def test_what_is_done_is_not_done_again(
    done: list[tuple[int, int, int]], left: list[tuple[int, int, int]]
) -> None:
    found = unfinished_ranges(ranges((0, 0, 100)), [("t", *each) for each in done])
    assert found == ranges(*left)


def test_pieces_of_a_partition_come_one_after_another_where_order_counts() -> None:
    found = stages(ranges((0, 0, 25), (1, 5, 10)), 10, order="in stages")
    assert found == [
        ranges((0, 0, 10), (1, 5, 10)),
        ranges((0, 10, 20)),
        ranges((0, 20, 25)),
    ]


def test_all_pieces_come_at_once_where_it_does_not() -> None:
    (wave,) = stages(ranges((0, 0, 25), (1, 5, 10)), 10, order=None)
    assert [(each.partition, each.start, each.end) for each in wave] == [
        (0, 0, 10), (0, 10, 20), (0, 20, 25), (1, 5, 10),
    ]  # fmt: skip
    assert stages([], 10, order=None) == []
    assert stages([], None, order="in stages") == []


def test_without_a_limit_a_range_is_one_piece() -> None:
    assert stages(ranges((0, 0, 25)), None, order="in stages") == [ranges((0, 0, 25))]


def test_a_task_has_all_ranges_of_a_partition_in_order_if_the_order_counts() -> None:
    given = ranges((1, 5, 10), (0, 20, 30), (0, 0, 10))
    assert tasks(given, ordered=True) == [ranges((0, 0, 10), (0, 20, 30)), ranges((1, 5, 10))]
    assert tasks(given, ordered=False) == [[given_item] for given_item in given]
    assert tasks([], ordered=True) == []


def test_a_stage_has_ranges_of_a_partition_up_to_the_limit_if_a_task_orders_them() -> None:
    given = ranges((0, 0, 4), (0, 6, 8), (0, 9, 14), (1, 0, 25))
    assert stages(given, 10, order="in a task") == [
        ranges((0, 0, 4), (0, 6, 8), (1, 0, 10)),
        ranges((0, 9, 14), (1, 10, 20)),
        ranges((1, 20, 25)),
    ]
    assert stages(given, None, order="in a task") == [given]
    assert stages([], 10, order="in a task") == []


def test_the_plan_of_an_earlier_run_is_read_as_it_was_written() -> None:
    planned = [OffsetRange("t", 0, 5, 9, 1, 2, "id"), OffsetRange("t", 1, 0, 3)]
    line = json.dumps(
        {"target": "app:consumer", "ranges": [offset_range._asdict() for offset_range in planned]}
    )
    assert _stored_plan([line], "/runs/one") == ("app:consumer", planned)


@pytest.mark.parametrize(
    "lines",
    [
        ["no json"],
        ["{}", "{}"],
        ['{"target": "app:consumer", "ranges": %s}' % ("[" * 100_000)],
        ['{"target": "app:consumer", "ranges": [{"topic": "t"}]}'],
        ['{"target": "a:b", "ranges": [{"topic": "t", "partition": "0", "start": 0, "end": 1}]}'],
        ['{"target": 1, "ranges": []}'],
    ],
    ids=["text", "two lines", "nested", "fields missing", "wrong type", "target"],
)
def test_a_folder_without_a_plan_is_a_replay_error(lines: list[str]) -> None:
    with pytest.raises(ReplayError, match="/runs/one has no plan of a replay"):
        _stored_plan(lines, "/runs/one")
