"""With exactly_once, a partition whose completion map cannot be used is not read."""

from __future__ import annotations

import pytest
from unit.core.commit.test_completion_maps import MapGroup, heir, successor
from unit.core.scripted_brokers import tp

from asyncrevoke.client.core.partition.completion_map import encode
from asyncrevoke.client.errors import PartitionsError

WRITTEN = encode(2, [(4, 6)], 0, 512).metadata


def stopped_by(group: MapGroup, words: str) -> bool:
    """Whether a poll raises an error with these words, and no later one returns a record."""
    group.advance(1)
    with pytest.raises(PartitionsError, match=words) as raised:
        for _ in range(5):
            assert not group.step().records
            group.advance(1)
    for _ in range(5):
        assert not group.step().records
        group.advance(1)
    return raised.value.partitions == frozenset((tp(0),))


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(WRITTEN[:-3], id="cut"),
        pytest.param(encode(3, [(4, 6)], 0, 512).metadata, id="of another offset"),
        pytest.param("ar2" + WRITTEN[3:], id="of a later version"),
    ],
)
def test_a_map_that_cannot_be_read_stops_its_partition(metadata: str) -> None:
    group = heir(2, metadata, processing="exactly_once", commit_mode="processed")
    assert stopped_by(group, "completion map cannot be used")


def test_a_map_beyond_the_end_of_the_log_stops_its_partition() -> None:
    group = successor(2, (4, 30), processing="exactly_once", commit_mode="processed")
    assert stopped_by(group, "a log up to 10")


@pytest.mark.parametrize("metadata", ["", "archive", "some tool's"])
def test_metadata_of_others_stops_nothing(metadata: str) -> None:
    group = heir(2, metadata, processing="exactly_once", commit_mode="processed")
    assert [record.offset for record in group.take(8)] == list(range(2, 10))


def test_a_member_that_writes_no_maps_skips_what_a_map_lists() -> None:
    group = heir(2, WRITTEN, processing="exactly_once", commit_mode="processed", completion_map=0)
    assert [record.offset for record in group.take(6)] == [2, 3, 6, 7, 8, 9]
