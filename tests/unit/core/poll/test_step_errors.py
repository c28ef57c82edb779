"""Which records come before an error that a step raises."""

from __future__ import annotations

import pytest
from unit.core.poll.test_polling import member, offsets
from unit.core.scripted_brokers import tp

from asyncrevoke.client.errors import LogTruncationError, OffsetOutOfRangeError
from asyncrevoke.client.protocol.messages import EARLIEST_TIMESTAMP


def steps(limit: int, *, flowing: bool) -> list[tuple[int, int] | str]:
    """What steps return and raise of two partitions with five records each, of which the first
    goes on outside its log; records of the second may be written all the time."""
    group = member(auto_offset_reset="error", max_poll_records=limit)
    assert group.poll() is None
    group.produce(0, 5)
    group.produce(1, 5)
    log = group.logs[tp(0)]
    log.append(20)
    log.delete_before(20)
    seen: list[tuple[int, int] | str] = []
    for _ in range(40):
        try:
            found = group.poll()
        except OffsetOutOfRangeError:
            seen.append("raised")
        else:
            seen += [] if found is None else offsets(found)
        if flowing:
            group.produce(1)
        group.advance(0.1)
    return seen


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_position_outside_the_log_is_raised_after_all_records_that_were_buffered(
    limit: int,
) -> None:
    seen = steps(limit, flowing=False)
    assert seen[-1] == "raised"
    assert sorted(seen[:-1]) == [(number, offset) for number in (0, 1) for offset in range(5)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_position_outside_the_log_is_raised_while_other_partitions_flow(limit: int) -> None:
    seen = steps(limit, flowing=True)
    assert seen.count("raised") == 1
    before = seen[: seen.index("raised")]
    assert {(number, offset) for number in (0, 1) for offset in range(5)} <= set(before)
    assert len(before) < 30
    assert len(seen) > len(before) + 5


def test_what_is_paused_is_not_waited_for() -> None:
    group = member(0, 1)
    group.produce(0, 3)
    group.core.failed(group.now, OffsetOutOfRangeError([tp(1)]))
    group.core.seeking.pause(group.now, [tp(0)])
    with pytest.raises(OffsetOutOfRangeError):
        group.poll()


def test_after_a_seek_an_error_about_the_former_position_is_not_raised() -> None:
    group = member(0, 1)
    group.produce(0, 3)
    group.core.failed(group.now, OffsetOutOfRangeError([tp(1)]))
    group.core.seek(group.now, tp(1), 0)
    assert offsets(group.poll()) == [(0, 0), (0, 1), (0, 2)]
    assert group.poll() is None


def test_after_a_seek_to_the_beginning_an_error_about_the_former_position_is_not_raised() -> None:
    group = member(0, 1)
    group.produce(0, 3)
    group.core.failed(group.now, OffsetOutOfRangeError([tp(1)]))
    group.core.seek_to(group.now, [tp(1)], EARLIEST_TIMESTAMP)
    assert offsets(group.poll()) == [(0, 0), (0, 1), (0, 2)]
    assert group.poll() is None


def test_a_truncated_log_is_reported_even_after_a_seek() -> None:
    group = member(0, 1)
    group.produce(0, 3)
    group.core.failed(group.now, LogTruncationError(tp(1), 10, 5))
    group.core.seek(group.now, tp(1), 5)
    assert offsets(group.poll()) == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(LogTruncationError):
        group.poll()


def test_an_error_about_a_position_ends_a_step_whose_timeout_is_over() -> None:
    group = member(0, 1)
    group.core.failed(group.now, OffsetOutOfRangeError([tp(1)]))
    with pytest.raises(OffsetOutOfRangeError):
        group.step()
