"""Runs of finished offsets as commit metadata, and back."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asyncrevoke.client.core.partition.completion_map import (
    CompletionMap,
    decode,
    encode,
    is_written_map,
    lowest_offset_that_fits,
    other_metadata,
    without_stop,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.partition.completion_map import Run


def runs_of(offset: int, lengths: list[int]) -> list[Run]:
    """What is not done and what is, by turns."""
    ends = [offset + end for end in accumulate(lengths)]
    return [(ends[at], ends[at + 1]) for at in range(0, len(ends) - 1, 2)]


def random_runs(offset: int, window: int, share: float) -> list[Run]:
    """The first record is not done, and of the rest this share is."""
    rng = random.Random(window)
    runs: list[Run] = []
    for at in range(offset + 1, offset + window):
        if rng.random() < share:
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], at + 1)
            else:
                runs.append((at, at + 1))
    return runs


def periodic(pair: list[int], times: int) -> list[int]:
    return pair * times


short = st.integers(1, 300)
lengths = st.one_of(
    st.lists(short, max_size=40),
    st.lists(st.integers(1, 3), max_size=3000),
    st.lists(st.sampled_from([1, 1, 2, 127, 128, 16_383, 16_384, 400_000]), max_size=60),
    st.builds(periodic, st.lists(short, min_size=2, max_size=2), st.integers(0, 900)),
)
offsets = st.one_of(st.integers(0, 1000), st.integers(0, 1 << 62))


@settings(max_examples=400)
@given(offsets, lengths, st.integers(-1, 1 << 31), st.integers(0, 4096))
@example(5, [1, 380_000], 7, 512)
def test_what_is_read_is_the_beginning_of_what_was_written(
    offset: int, lengths: list[int], epoch: int, limit: int
) -> None:
    runs = runs_of(offset, lengths)
    encoded = encode(offset, runs, epoch, limit)
    assert len(encoded.metadata) <= limit
    found = decode(offset, encoded.metadata)
    read = () if found is None else found.runs
    assert list(read) == runs[: len(read)]
    if encoded.cut_at is None:
        assert len(read) == len(runs)
    else:
        assert encoded.cut_at == runs[len(read)][0]
    if found is not None:
        assert found.leader_epoch == epoch


@given(lengths)
def test_a_map_may_begin_with_what_is_done(lengths: list[int]) -> None:
    runs = runs_of(7, [0, *lengths])
    encoded = encode(7, runs, 3, 4096)
    found = decode(7, encoded.metadata)
    assert (() if found is None else found.runs) == tuple(runs[: found and len(found.runs)])


@settings(max_examples=300)
@given(offsets, st.text(max_size=200))
def test_foreign_metadata_is_no_map(offset: int, metadata: str) -> None:
    assert decode(offset, metadata) is None
    assert decode(offset, "ar1R" + metadata) is None


@settings(max_examples=400)
@given(offsets, lengths, st.sampled_from([40, 512, 4096]), st.data())
def test_a_corrupt_completion_map_is_ignored(
    offset: int, lengths: list[int], limit: int, data: st.DataObject
) -> None:
    metadata = encode(offset, runs_of(offset, lengths), 3, limit).metadata
    at = data.draw(st.integers(0, len(metadata)))
    corrupt = data.draw(
        st.sampled_from([metadata[:at], metadata + "A", metadata[:at] + "A" + metadata[at + 1 :]])
    )
    found = decode(offset, corrupt)
    # Base64 has bits to spare at its end: then it is the same map.
    assert found is None or found == decode(offset, metadata)


@given(offsets, st.lists(short, min_size=2, max_size=40), st.integers(-1000, 1000))
def test_a_map_beside_another_offset_is_no_map(offset: int, lengths: list[int], by: int) -> None:
    metadata = encode(offset, runs_of(offset, lengths), 3, 512).metadata
    assert (decode(offset + by, metadata) is None) == (by != 0)


def test_a_bomb_is_not_inflated() -> None:
    runs = [(at, at + 1) for at in range(1, 1_000_000, 2)]
    encoded = encode(0, runs, 0, 4096)
    found = decode(0, encoded.metadata)
    assert found is not None
    assert encoded.cut_at is not None
    assert found.end <= 1 << 19


def test_nothing_finished_is_no_metadata() -> None:
    assert encode(5, [], 3, 512) == ("", None)


@pytest.mark.parametrize("limit", [0, 10, 14])
def test_what_does_not_fit_at_all_is_left_out(limit: int) -> None:
    assert encode(5, [(6, 9)], 3, limit) == ("", 6)


def test_one_stuck_record_takes_a_few_characters() -> None:
    encoded = encode(1000, [(1001, 381_000)], 3, 512)
    assert len(encoded.metadata) <= 22
    assert decode(1000, encoded.metadata) == CompletionMap(((1001, 381_000),), 3)


@pytest.mark.parametrize(
    ("share", "limit", "least"),
    [
        (0.5, 512, 2_800),
        (0.9, 512, 4_000),
        (0.99, 512, 18_000),
        (0.5, 4096, 23_000),
        (0.9, 4096, 38_000),
        (0.99, 4096, 180_000),
    ],
)
def test_so_wide_a_window_fits(share: float, limit: int, least: int) -> None:
    found = decode(9, encode(9, random_runs(9, 200_000, share), 3, limit).metadata)
    assert found is not None
    assert found.end - 9 >= least


@settings(max_examples=300)
@given(offsets, lengths, st.integers(16, 4096), st.data())
def test_from_the_reported_offset_on_a_map_holds_all_completed_records(
    offset: int, lengths: list[int], limit: int, data: st.DataObject
) -> None:
    """Some runs are single records that were running: they end, or they do not."""
    runs = runs_of(offset, lengths)
    running = [run for run in runs if run[1] - run[0] == 1 and data.draw(st.booleans())]
    first = lowest_offset_that_fits(offset, runs, limit)
    assert first >= offset
    unended = {run for run in running if data.draw(st.booleans())}
    left = [run for run in runs if run[0] >= first and run not in unended]
    later = data.draw(st.integers(first, max(first, left[0][0] if left else first)))
    encoded = encode(later, left, 1 << 30, limit)
    assert encoded.cut_at is None
    known = decode(later, encoded.metadata)
    assert (() if known is None else known.runs) == tuple(left)


def test_a_ragged_edge_is_carried_from_where_the_map_has_room() -> None:
    runs = [(at, at + 1) for at in range(1, 8001, 2)]
    first = lowest_offset_that_fits(0, runs, 512)
    assert 0 < first < 8000
    assert encode(first, [run for run in runs if run[0] >= first], 1 << 30, 512).cut_at is None
    assert lowest_offset_that_fits(0, [(1, 2000)], 512) == 0
    assert lowest_offset_that_fits(0, [], 512) == 0
    assert lowest_offset_that_fits(0, [(1, 2)], 4) == 2, "no map has room"


def test_a_full_stop_at_the_end_distinguishes_metadata_that_means_the_same() -> None:
    written = encode(7, [(9, 12)], 3, 100).metadata
    other = other_metadata(written)
    assert other != written
    assert decode(7, other) == decode(7, written)
    assert other_metadata(other) == written == without_stop(other) == without_stop(written)
    assert other_metadata("") == "."
    assert decode(7, ".") is None
    assert not is_written_map(".")
