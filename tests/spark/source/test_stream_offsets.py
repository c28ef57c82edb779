from __future__ import annotations

import pytest

from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.source.stream_offsets import advance, check_not_renewed


def test_without_a_limit_a_batch_takes_all_that_there_is() -> None:
    assert advance({"0": 5, "1": 0}, {}, {"0": 9, "1": 4}, None) == {"0": 9, "1": 4}


def test_a_limit_is_shared_fairly_between_waiting_calls() -> None:
    end = advance({"0": 0, "1": 0, "2": 7}, {}, {"0": 1000, "1": 1, "2": 7}, 100)
    assert end == {"0": 99, "1": 1, "2": 7}


def test_a_new_partition_begins_where_its_log_does() -> None:
    assert advance({"0": 5}, {"0": 0, "1": 3}, {"0": 5, "1": 8}, 2) == {"0": 5, "1": 5}


def test_a_batch_by_batch_walk_reaches_the_end() -> None:
    position, last, steps = {"0": 0, "1": 10}, {"0": 57, "1": 31}, 0
    while position != last:
        position = advance(position, {}, last, 10)
        steps += 1
    assert steps < 20


@pytest.mark.parametrize(
    ("last", "words"), [({"0": 3}, "ends at offset 3"), ({}, "does not exist")]
)
def test_a_recreated_topic_is_reported(last: dict[str, int], words: str) -> None:
    with pytest.raises(DataLossError, match=f"{words}.*begin with a new checkpoint"):
        check_not_renewed("orders", {"0": 5}, last)
