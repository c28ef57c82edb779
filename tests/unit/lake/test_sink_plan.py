"""What a sink stores when, and which offsets each file has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke import TopicPartition
from asyncrevoke.cli.sink.plan import OpenFile, SinkPlan, StorageError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def plan_of(*, max_bytes: int = 1000, max_wait: float = 10.0, together: bool = False) -> SinkPlan:
    plan = SinkPlan(max_bytes, max_wait, together=together)
    for partition in FIRST, SECOND:
        plan.assigned(partition, 0, 100)
    return plan


def file_of(plan: SinkPlan, partition: TopicPartition) -> OpenFile:
    file = plan.file(partition)
    assert file is not None
    return file


def test_a_file_is_due_when_it_is_large_or_old_enough() -> None:
    plan = plan_of()
    assert plan.time_left(0.0) is None
    large, old = file_of(plan, FIRST), file_of(plan, SECOND)
    old.add(0, 4, 5, 10, 1.0)
    large.add(0, 4, 5, 999, 5.0)
    assert plan.time_left(5.0) == 6.0
    assert plan.due(5.0) == []
    large.add(5, 5, 1, 1, 6.0)
    assert plan.due(6.0) == [large]
    large.stored()
    assert (large.first, large.next, large.rows) == (6, 6, 0)
    assert plan.due(10.9) == []
    assert plan.time_left(10.5) == 0.5
    assert plan.due(11.0) == [old]
    assert plan.time_left(12.0) == 0.0


def test_files_that_are_stored_together_are_all_due_when_one_is() -> None:
    plan = plan_of(together=True)
    for partition in FIRST, SECOND:
        file_of(plan, partition).add(0, 0, 1, 10, 0.0)
    assert plan.due(1.0) == []
    file_of(plan, FIRST).add(1, 1, 1, 2000, 1.0)
    assert plan.due(1.0) == [file_of(plan, FIRST), file_of(plan, SECOND)]


def test_the_size_of_a_file_is_that_of_its_compressed_row_groups() -> None:
    plan = plan_of()
    file = file_of(plan, FIRST)
    file.add(0, 9, 10, 900, 0.0)
    file.group_written(90)
    file.add(10, 19, 10, 900, 0.0)
    assert file.estimated_size == 180
    assert plan.due(0.0) == []


def test_rows_wait_in_memory_for_a_row_group_in_a_share_of_256_mib() -> None:
    plan = plan_of()
    file = file_of(plan, FIRST)
    file.add(0, 0, 1, 16 * 2**20 - 1, 0.0)
    assert not plan.needs_group(file)
    for number in range(2, 64):
        plan.assigned(TopicPartition("orders", number), 0, 100)
    assert plan.needs_group(file)


def test_an_offset_before_the_stored_ones_is_an_error_and_a_gap_is_none() -> None:
    plan = plan_of()
    plan.assigned(FIRST, 50, 100)
    file = file_of(plan, FIRST)
    file.add(70, 79, 3, 10, 0.0)
    assert (file.first, file.next) == (50, 80)
    with pytest.raises(StorageError, match="orders-0 has delivered offset 79 after 79: is it"):
        file.add(79, 80, 2, 10, 0.0)


def test_a_lake_that_ends_after_its_topic_is_refused() -> None:
    plan = plan_of()
    with pytest.raises(
        StorageError, match="orders-0 is stored up to offset 101, and the topic ends at 100"
    ):
        plan.assigned(FIRST, 101, 100)
    assert plan.file(FIRST) is None


def test_a_new_assignment_drops_what_is_open_and_a_release_too() -> None:
    plan = plan_of()
    file_of(plan, FIRST).add(0, 9, 10, 10, 0.0)
    plan.assigned(FIRST, 4, 200)
    assert (file_of(plan, FIRST).first, file_of(plan, FIRST).rows) == (4, 0)
    plan.released(FIRST)
    assert plan.file(FIRST) is None
    assert plan.partitions == {SECOND}


def test_a_topic_is_read_when_all_assigned_partitions_reached_the_ends_they_had_first() -> None:
    plan = SinkPlan(1000, 10.0, together=False)
    assert not plan.is_read({})
    plan.assigned(FIRST, 0, 100)
    plan.assigned(SECOND, 0, 0)
    plan.assigned(FIRST, 50, 150)
    assert not plan.is_read({FIRST: 99, SECOND: 0})
    assert not plan.is_read({FIRST: 100})
    assert plan.is_read({FIRST: 100, SECOND: 0})


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 50), st.integers(0, 3000), st.booleans()),
        max_size=40,
    )
)
def test_the_files_of_a_partition_have_each_offset_once(
    reads: list[tuple[int, int, int, bool]],
) -> None:
    """Of reads with gaps, of which some are followed by a revocation that comes back."""
    plan = plan_of()
    stored = end = 0
    for now, (gap, rows, size, revoked) in enumerate(reads):
        file = file_of(plan, FIRST)
        file.add(end + gap, end + gap + rows - 1, rows, size, float(now))
        end += gap + rows
        due = plan.not_stored() if revoked else plan.due(float(now))
        for each in due:
            assert each.first == stored
            stored = each.next
            each.stored()
        if revoked:
            assert stored == end
            plan.released(FIRST)
            plan.assigned(FIRST, stored, 10_000)
        assert file_of(plan, FIRST).first == stored
        assert file_of(plan, FIRST).next == end
