"""Records that are delivered when they are due, in the order of their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.partition.test_record_buffer import TP, dense, offsets

from asyncrevoke.client.core.fetch.delayed_topic import DueRecords, TopicDelay
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.model import Record

if TYPE_CHECKING:
    from collections.abc import Sequence


def due_at(*seconds: float) -> list[Record]:
    return [
        Record("retry", 0, offset, int(at * 1000), 0, None, None)
        for offset, at in enumerate(seconds)
    ]


def timestamp(record: Record) -> float:
    return record.timestamp


def head() -> DueRecords:
    return DueRecords(TopicDelay(60.0, timestamp))


def test_records_are_due_up_to_the_first_that_is_not() -> None:
    due = head()
    assert due.due_to(due_at(100, 101, 130, 90), 0, 4, 105.0) == 2
    assert due.wait == pytest.approx(25)
    assert due.due_to(due_at(100, 101, 130, 90), 2, 4, 130.0) == 4
    assert due.wait is None


def test_nothing_behind_the_end_is_looked_at() -> None:
    due = head()
    assert due.due_to(due_at(100, 101, 130), 0, 2, 105.0) == 2
    assert due.wait is None


def test_what_is_due_within_a_millisecond_is_due() -> None:
    assert head().due_to(due_at(100), 0, 1, 99.9995) == 1


def test_what_is_due_soon_is_waited_for_a_little_longer() -> None:
    due = head()
    assert due.due_to(due_at(100.002), 0, 1, 100.0) == 0
    assert due.wait == pytest.approx(0.01)


def test_a_writer_whose_clock_is_ahead_costs_one_delay_and_not_one_per_record() -> None:
    due = head()
    records = due_at(3700, 3705, 3710)
    assert due.due_to(records, 0, 3, 100.0) == 0
    assert due.wait == 60
    # Its clock is an hour ahead, less the delay: those behind are measured by that.
    assert due.due_to(records, 0, 3, 160.0) == 1
    assert due.wait == pytest.approx(5)
    assert due.due_to(records, 1, 3, 165.0) == 2


def test_timestamps_of_a_writer_with_a_corrected_clock_are_used_again() -> None:
    due = head()
    assert due.due_to(due_at(3700, 170, 250), 0, 3, 100.0) == 0
    assert due.due_to(due_at(3700, 170, 250), 0, 3, 175.0) == 2
    assert due.wait == 60


def test_a_buffer_gives_what_is_due_and_keeps_the_rest_decoded() -> None:
    ends = {0: 2, 2: 2, 3: 3}

    def due_to(records: Sequence[Record], first: int, end: int) -> int:
        return min(end, ends.get(first, end))

    buffer = RecordBuffer(TP, 1, 0)
    first = dense(0, 4)
    buffer.append([first, dense(4, 2)])
    assert offsets(buffer.take(10, due_to)) == [0, 1]
    assert (buffer.position, buffer.buffered) == (2, 4)
    assert offsets(buffer.take(10, due_to)) == []
    assert (buffer.position, buffer.buffered) == (2, 4)
    ends.clear()
    assert offsets(buffer.take(10, due_to)) == [2, 3, 4, 5]
    assert first.decoded == 1
    assert buffer.position == 6
