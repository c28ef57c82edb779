from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrevoke.client.core.partition.completion_map import CompletionMap
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.records import CorruptBatch

TP = TopicPartition("orders", 0)


@dataclass
class LetterBatch:
    """A batch that knows its records and can be made corrupt."""

    base_offset: int
    next_offset: int
    offsets: list[int]
    leader_epoch: int = 0
    corrupt: bool = False
    decoded: int = 0
    size: int = field(default=100)
    unpacked: int = 100
    checksum: int = 0

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def unpacked_size(self) -> int:
        return self.unpacked

    @property
    def viewed_size(self) -> int:
        return 0

    def copy(self) -> None:
        """Do nothing: it is not a view of a response."""

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        self.decoded += 1
        if self.corrupt:
            raise CorruptBatch("checksum mismatch")
        self.size = self.unpacked
        return [
            Record(topic, partition, offset, 0, 0, None, None, (), tracker_id)
            for offset in self.offsets
            if offset >= from_offset
        ]


def dense(first: int, count: int, epoch: int = 0) -> LetterBatch:
    return LetterBatch(first, first + count, list(range(first, first + count)), epoch)


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]


def test_records_come_in_offset_order_with_the_tracker_id() -> None:
    buffer = RecordBuffer(TP, 9, 0)
    buffer.append([dense(0, 3), dense(3, 3)])
    taken = buffer.take(4)
    assert offsets(taken) == [0, 1, 2, 3]
    assert {record.tracker_id for record in taken} == {9}
    assert (buffer.position, buffer.buffered, buffer.fetch_position) == (4, 2, 6)


def test_only_the_batches_that_are_needed_are_decoded_and_each_once() -> None:
    batches = [dense(0, 3), dense(3, 3)]
    buffer = RecordBuffer(TP, 1, 0)
    buffer.append(batches)
    buffer.take(1)
    buffer.take(2)
    assert [batch.decoded for batch in batches] == [1, 0]


def test_the_position_lies_past_holes_and_batches_without_records() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    buffer.append([LetterBatch(0, 5, [1, 3]), LetterBatch(5, 6, []), LetterBatch(6, 10, [8])])
    assert offsets(buffer.take(1)) == [1]
    assert buffer.position == 3
    assert offsets(buffer.take(1)) == [3]
    assert buffer.position == 6
    assert offsets(buffer.take(9)) == [8]
    assert (buffer.position, buffer.buffered, buffer.size) == (10, 0, 0)


def test_leading_batches_without_records_move_the_position_at_once() -> None:
    buffer = RecordBuffer(TP, 1, 4)
    buffer.append([LetterBatch(3, 6, []), LetterBatch(6, 7, [])])
    assert (buffer.position, buffer.fetch_position, buffer.buffered, buffer.size) == (7, 7, 0, 0)


def test_a_fetch_from_inside_a_batch_yields_no_earlier_record() -> None:
    buffer = RecordBuffer(TP, 1, 7)
    buffer.append([dense(0, 10)])
    assert buffer.buffered == 3
    assert offsets(buffer.take(100)) == [7, 8, 9]


def test_a_batch_that_turns_out_empty_is_passed() -> None:
    buffer = RecordBuffer(TP, 1, 8)
    buffer.append([LetterBatch(0, 10, [0, 1])])
    assert buffer.buffered == 2
    assert buffer.take(5) == []
    assert (buffer.position, buffer.buffered) == (10, 0)


def test_what_is_buffered_already_is_not_appended_again() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    buffer.append([dense(0, 3)])
    buffer.append([dense(0, 3), dense(3, 2)])
    assert offsets(buffer.take(99)) == [0, 1, 2, 3, 4]


def test_epochs_follow_what_was_taken_and_what_was_fetched() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    assert (buffer.leader_epoch, buffer.fetch_epoch) == (-1, -1)
    buffer.append([dense(0, 2, epoch=3), dense(2, 2, epoch=4)])
    assert (buffer.leader_epoch, buffer.fetch_epoch) == (-1, 4)
    buffer.take(2)
    assert buffer.leader_epoch == 3
    buffer.take(2)
    assert buffer.leader_epoch == 4


def test_records_of_another_leader_epoch_are_taken_separately() -> None:
    buffer, tracker = RecordBuffer(TP, 1, 0), OffsetTracker(1, 0)
    buffer.append([dense(0, 5, epoch=5), dense(5, 5, epoch=5), dense(10, 10, epoch=6)])
    taken: list[list[int]] = []
    while records := buffer.take(500):
        taken.append(offsets(records))
        tracker.deliver(records, buffer.position, buffer.leader_epoch)
    assert taken == [list(range(10)), list(range(10, 20))]
    assert tracker.epoch_before(5) == 5
    assert tracker.diverges_at(5) == buffer.diverges_at(5, 20) == 10


def finished(*runs: tuple[int, int], epoch: int = 0) -> CompletionMap:
    return CompletionMap(runs, epoch)


def test_what_is_finished_is_passed_and_counted() -> None:
    buffer = RecordBuffer(TP, 1, 0, finished((1, 3), (5, 6), (8, 30)))
    buffer.append([dense(0, 10), dense(10, 20), dense(30, 2)])
    assert offsets(buffer.take(2)) == [0, 3]
    assert buffer.position == 4
    assert offsets(buffer.take(99)) == [4, 6, 7, 30, 31]
    assert (buffer.position, buffer.buffered, buffer.skipped_completed) == (32, 0, 25)
    assert buffer.completed_earlier is None, "it costs nothing any more"


def test_what_was_written_by_a_later_leader_is_not_passed() -> None:
    buffer = RecordBuffer(TP, 1, 0, finished((1, 9), epoch=3))
    buffer.append([dense(0, 3, epoch=3), dense(3, 3, epoch=4), dense(6, 4, epoch=3)])
    assert [offsets(buffer.take(99)) for _ in range(3)] == [[0], [3, 4, 5], [9]]


def test_a_buffer_of_finished_records_alone_is_emptied() -> None:
    buffer = RecordBuffer(TP, 1, 2, finished((2, 9)))
    buffer.append([dense(0, 5), dense(5, 3)])
    assert buffer.take(1) == []
    assert (buffer.position, buffer.buffered, buffer.size, buffer.skipped_completed) == (8, 0, 0, 6)


def test_records_before_a_corrupt_batch_come_first_and_the_position_stays_before_it() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    bad = dense(3, 3)
    bad.corrupt = True
    buffer.append([dense(0, 3), bad, dense(6, 3)])
    assert offsets(buffer.take(10)) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as caught:
            buffer.take(10)
        assert (caught.value.offset, caught.value.partitions) == (3, frozenset([TP]))
        assert "checksum mismatch" in str(caught.value)
        assert "goes up to offset" in str(caught.value)  # where to seek
        assert buffer.position == 3


def test_after_discarding_it_is_fetched_again_from_the_position() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    buffer.append([dense(0, 3, epoch=2), dense(3, 3, epoch=5)])
    buffer.take(2)
    buffer.discard()
    assert (buffer.position, buffer.fetch_position, buffer.fetch_epoch) == (2, 2, 2)
    assert (buffer.buffered, buffer.size) == (0, 0)
    buffer.append([dense(0, 3), dense(3, 3)])
    assert offsets(buffer.take(99)) == [2, 3, 4, 5]


@pytest.mark.parametrize("wrong", [[5, 6], [2, 3, 4], [0, 0, 0]])
def test_records_outside_of_their_batch_are_corrupt(wrong: list[int]) -> None:
    buffer = RecordBuffer(TP, 1, 0)
    buffer.append([LetterBatch(0, 3, wrong)])
    with pytest.raises(CorruptRecordError):
        buffer.take(10)


def test_an_opened_batch_counts_its_unpacked_size() -> None:
    buffer = RecordBuffer(TP, 1, 0)
    packed = dense(0, 10)
    packed.unpacked = 1000
    buffer.append([packed, dense(10, 10)])
    assert buffer.size == 200
    buffer.take(1)
    assert buffer.size == 1100
    buffer.take(9)
    assert buffer.size == 100


layouts = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.integers(0, 5)), st.integers(0, 2)), max_size=12
)


@settings(max_examples=200)
@given(layouts, st.integers(0, 20), st.lists(st.integers(1, 9), max_size=40))
def test_nothing_is_skipped_or_repeated_whatever_is_taken(
    layout: list[tuple[int, set[int], int]], start: int, limits: list[int]
) -> None:
    batches: list[LetterBatch] = []
    at = 0
    for span, present, gap in layout:
        at += gap
        batches.append(LetterBatch(at, at + span, sorted(at + i for i in present if i < span)))
        at += span
    expected = [offset for batch in batches for offset in batch.offsets if offset >= start]
    buffer = RecordBuffer(TP, 1, start)
    buffer.append(batches)
    end = max(start, at if batches else 0)
    taken: list[int] = []
    for limit in [*limits, 10_000]:
        before = buffer.position
        part = offsets(buffer.take(limit))
        assert len(part) <= limit
        assert all(before <= offset < buffer.position for offset in part)
        taken += part
        assert buffer.buffered >= len(expected) - len(taken)
        assert buffer.position <= (expected[len(taken)] if len(taken) < len(expected) else end)
    assert taken == expected
    assert (buffer.position, buffer.buffered, buffer.size) == (end, 0, 0)
