"""Finished records: the order in which their results are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import Record
from asyncrevoke.client.producing.exactly_once.finished_records import (
    FinishedRecords,
    ResultTarget,
    results_of,
)
from asyncrevoke.client.producing.message import PublishedRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.errors import PublishError


def fail(_records: Sequence[Record], error: PublishError) -> None:
    raise error


TARGET = ResultTarget("totals", "add", fail)


def record(offset: int) -> Record:
    return Record("orders", 0, offset, 0, 0, b"k", b"%d" % offset, (), 7)


def values(finished: FinishedRecords, *indices: int) -> list[bytes | None]:
    taken, _ = finished.take({7: indices}, {})
    return [value for _, _, _, value, _, _ in results_of(taken)]


def published(value: bytes) -> PublishedRecord:
    return PublishedRecord("totals", None, b"k", value, [], None)


def test_results_of_a_key_are_written_in_the_order_of_its_records() -> None:
    finished = FinishedRecords()
    finished.add_result(record(2), TARGET, b"2")
    # Retried, so its call is reported with others at the end of the turn.
    finished.begin_call(record(1), "add", fail)
    retried = record(1)
    finished.begin_call(retried, "add", fail).append(published(b"1"))
    finished.add([retried])
    assert finished.offsets() == {7: [1, 2]}
    assert values(finished, 0, 1) == [b"1", b"2"]
    assert finished.count == 0


def test_what_is_not_taken_waits_and_what_is_put_back_is_among_it_in_order() -> None:
    finished = FinishedRecords()
    for offset in range(4):
        finished.add_result(record(offset), TARGET, b"%d" % offset)
    assert finished.offsets() == {7: [0, 1, 2, 3]}
    taken, _ = finished.take({7: [0, 2]}, {})
    assert finished.offsets() == {7: [1, 3]}
    finished.put_back(taken)
    assert finished.offsets() == {7: [0, 1, 2, 3]}
    assert finished.count == 4


def test_chosen_and_dropped_records_are_taken_by_the_same_indices() -> None:
    finished = FinishedRecords()
    for offset in (3, 0, 2, 1):
        finished.add_result(record(offset), TARGET, b"%d" % offset)
    assert finished.offsets() == {7: [0, 1, 2, 3]}
    taken, dropped = finished.take({7: [1, 3]}, {7: [0]})
    assert [content for _, _, content in taken[7]] == [b"1", b"3"]
    assert [content for _, _, content in dropped[7]] == [b"0"]
    assert finished.offsets() == {7: [2]}


def test_a_value_that_is_returned_follows_what_the_call_has_published() -> None:
    finished = FinishedRecords()
    one = record(1)
    finished.begin_call(one, "add", fail).append(published(b"early"))
    finished.add_result(one, TARGET, b"late")
    assert values(finished, 0) == [b"early", b"late"]


def test_results_of_a_failed_call_are_dropped() -> None:
    finished = FinishedRecords()
    one = record(1)
    finished.begin_call(one, "add", fail).append(published(b"failed"))
    finished.discard_results([one])
    finished.add_result(one, TARGET, b"retried")
    assert values(finished, 0) == [b"retried"]
