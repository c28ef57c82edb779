"""The demo's judge, on made-up logs. ``p0`` and ``p1`` are partitions, times are seconds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.cli.demo.group_result import (
    Evidence,
    GroupResult,
    Produced,
    RecordId,
    Stall,
    evaluate,
)
from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
Line = Started | Ended | Abandoned


def call(
    member: str,
    offset: int,
    begin: float,
    end: float | None,
    *,
    key: str | None = "k",
    partition: int = 0,
    returns: bool = True,
) -> list[Line]:
    """What one handler call writes; without an end it was killed."""
    lines: list[Line] = [
        Started(
            member=member, topic="orders", partition=partition, offset=offset, key=key, at=begin
        )
    ]
    if end is not None:
        kind = Ended if returns else Abandoned
        lines.append(
            kind(member=member, topic="orders", partition=partition, offset=offset, key=key, at=end)
        )
    return lines


def produced(*records: tuple[int, str | None, float], partition: int = 0) -> list[Produced]:
    place = TopicPartition("orders", partition)
    return [Produced(place, offset, key, at) for offset, key, at in records]


def result_of(
    records: Sequence[Produced],
    *calls: list[Line],
    committed: Mapping[TopicPartition, int] | None = None,
    concurrency: int = 64,
    died: Mapping[str, float] | None = None,
    killed: Mapping[str, Mapping[TopicPartition, int]] | None = None,
) -> GroupResult:
    ends = {record.partition: record.offset + 1 for record in records}
    return evaluate(
        Evidence(
            produced=records,
            handled=[line for each in calls for line in each],
            committed=ends if committed is None else committed,
            concurrency=concurrency,
            died=died or {},
            killed=killed or {},
        )
    )


class TestCounting:
    def test_clean_run_has_no_fault(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0), (2, "a", 0.0)),
            call("A", 0, 0.01, 0.1, key="a"),
            call("A", 1, 0.01, 0.1, key="b"),
            call("A", 2, 0.1, 0.2, key="a"),
        )
        assert (found.produced, found.handled) == (3, 3)
        assert (found.lost, found.unfinished, found.repeated) == ((), (), ())
        assert (found.uncommitted, found.disorder) == ((), ())

    def test_record_that_was_committed_and_never_handled_is_lost(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0)),
            call("A", 1, 0.01, 0.1, key="b"),
            committed={P0: 2},
        )
        assert found.lost == (RecordId(P0, 0),)
        assert found.unfinished == ()

    def test_record_whose_handler_was_cancelled_and_that_was_committed_is_lost(self) -> None:
        found = result_of(
            produced((0, "a", 0.0)),
            call("A", 0, 0.01, 0.1, key="a", returns=False),
            committed={P0: 1},
        )
        assert found.lost == (RecordId(P0, 0),)

    def test_record_that_was_neither_committed_nor_handled_is_unfinished(self) -> None:
        found = result_of(produced((0, "a", 0.0)), committed={})
        assert found.lost == ()
        assert found.unfinished == (RecordId(P0, 0),)

    def test_record_with_two_calls_is_repeated(self) -> None:
        found = result_of(
            produced((0, "a", 0.0)),
            call("A", 0, 0.01, 0.1, key="a"),
            call("B", 0, 0.5, 0.6, key="a"),
        )
        assert found.repeated == (RecordId(P0, 0),)
        assert found.handled == 1

    def test_call_that_was_killed_and_made_again_is_repeated_and_not_lost(self) -> None:
        found = result_of(
            produced((0, "a", 0.0)),
            call("A", 0, 0.01, None, key="a"),
            call("B", 0, 5.0, 5.1, key="a"),
            died={"A": 0.05},
        )
        assert found.repeated == (RecordId(P0, 0),)
        assert found.lost == ()
        assert found.disorder == ()

    def test_an_uncommitted_record_of_a_killed_member_may_be_repeated(self) -> None:
        records = produced((0, "a", 0.0), (1, "b", 0.0))
        calls = (
            call("A", 0, 0.01, 0.1, key="a"),
            call("A", 1, 0.01, 0.1, key="b"),
            call("B", 0, 5.0, 5.1, key="a"),
            call("B", 1, 5.0, 5.1, key="b"),
        )
        found = result_of(records, *calls, died={"A": 1.0}, killed={"A": {P0: 1}})
        assert found.repeated == (RecordId(P0, 0), RecordId(P0, 1))
        assert found.permitted_repeats == (RecordId(P0, 1),)

    def test_a_record_of_a_member_that_left_may_not_be_repeated(self) -> None:
        found = result_of(
            produced((0, "a", 0.0)),
            call("A", 0, 0.01, 0.1, key="a"),
            call("C", 0, 5.0, 5.1, key="a"),
            call("B", 0, 9.0, 9.1, key="a"),
            died={"A": 1.0},
            killed={"A": {}},
        )
        assert found.permitted_repeats == ()

    def test_handled_record_beyond_the_committed_offset_is_uncommitted(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0)),
            call("A", 0, 0.01, 0.1, key="a"),
            call("A", 1, 0.1, 0.2, key="a"),
            committed={P0: 1},
        )
        assert found.uncommitted == (RecordId(P0, 1),)

    def test_same_offset_in_another_partition_is_another_record(self) -> None:
        found = result_of(
            produced((0, "a", 0.0)) + produced((0, "a", 0.0), partition=1),
            call("A", 0, 0.01, 0.1, key="a"),
            call("B", 0, 0.01, 0.1, key="a", partition=1),
        )
        assert (found.handled, found.repeated, found.disorder) == (2, (), ())

    def test_latency_is_from_the_log_to_the_handlers_end(self) -> None:
        found = result_of(produced((0, "a", 1.0)), call("A", 0, 1.2, 1.5, key="a"))
        assert found.latency_median == pytest.approx(0.5)
        assert found.latency_p99 == pytest.approx(0.5)


class TestOrder:
    def test_later_record_of_the_key_first_is_a_violation(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0)),
            call("A", 1, 0.1, 0.2, key="a"),
            call("A", 0, 0.3, 0.4, key="a"),
        )
        assert [(each.record.offset, each.other.offset) for each in found.disorder] == [(0, 1)]

    def test_two_at_once_of_one_key_is_a_violation(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0)),
            call("A", 0, 0.1, 3.0, key="a"),
            call("B", 1, 2.0, 2.1, key="a"),
        )
        assert [(each.member, each.record.offset) for each in found.disorder] == [("B", 1)]

    def test_short_handler_between_does_not_hide_a_long_one(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0), (2, "a", 0.0)),
            call("A", 0, 0.1, 3.0, key="a"),
            call("A", 1, 0.2, 0.3, key="a"),
            call("A", 2, 0.5, 0.6, key="a"),
        )
        assert [each.record.offset for each in found.disorder] == [1, 2]

    def test_other_keys_may_overtake(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0)),
            call("A", 1, 0.1, 0.2, key="b"),
            call("A", 0, 0.3, 0.4, key="a"),
        )
        assert found.disorder == ()

    def test_next_record_at_the_very_end_of_the_last_is_in_order(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0)),
            call("A", 0, 0.1, 0.2, key="a"),
            call("A", 1, 0.2, 0.3, key="a"),
        )
        assert found.disorder == ()

    def test_records_without_a_key_have_no_order(self) -> None:
        found = result_of(
            produced((0, None, 0.0), (1, None, 0.0)),
            call("A", 1, 0.1, 0.3, key=None),
            call("A", 0, 0.2, 0.4, key=None),
        )
        assert found.disorder == ()


def stall_seconds(found: GroupResult) -> float:
    return round(found.longest_stall, 6)


class TestStall:
    def test_a_waiting_record_that_no_member_handles_is_a_stall(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 1.0)),
            call("A", 0, 0.0, 0.1, key="a"),
            call("A", 1, 4.0, 4.1, key="b"),
        )
        assert found.stall == Stall(P0, "A", 1.0, 3.0)

    def test_empty_log_is_no_stall(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 10.0)),
            call("A", 0, 0.0, 0.1, key="a"),
            call("A", 1, 10.0, 10.1, key="b"),
        )
        assert stall_seconds(found) == 0

    def test_order_by_key_permits_a_stall_until_the_key_is_free(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0)),
            call("A", 0, 0.0, 3.0, key="a"),
            call("A", 1, 3.5, 3.6, key="a"),
        )
        assert found.stall == Stall(P0, "A", 3.0, 0.5)

    def test_a_slow_handler_permits_no_stall_of_other_keys(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0)),
            call("A", 0, 0.0, 3.0, key="a"),
            call("A", 1, 3.0, 3.1, key="b"),
        )
        assert found.stall == Stall(P0, "A", 0.0, 3.0)

    def test_a_member_without_a_free_handler_may_stall_for_as_long(self) -> None:
        records = produced((0, "a", 0.0), (1, "b", 0.0)) + produced((0, "c", 0.0), partition=1)
        calls = (
            call("A", 0, 0.0, 2.0, key="a"),
            call("A", 0, 0.5, 1.5, key="c", partition=1),
            call("A", 1, 2.5, 2.6, key="b"),
        )
        assert stall_seconds(result_of(records, *calls, concurrency=64)) == 2.5
        # Two at once: nobody was free from 0.5 to 1.5, which leaves 1.5 to 2.5.
        found = result_of(records, *calls, concurrency=2)
        assert found.stall == Stall(P0, "A", 1.5, 1.0)

    def test_other_calls_of_the_partition_end_the_stall(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0), (2, "c", 0.0)),
            call("A", 0, 0.0, 0.1, key="a"),
            call("A", 1, 1.0, 1.1, key="b"),
            call("A", 2, 2.0, 2.1, key="c"),
        )
        assert stall_seconds(found) == 1

    def test_partition_that_moves_is_a_handover_and_no_stall(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0)),
            call("A", 0, 0.0, 0.1, key="a"),
            call("B", 1, 4.0, 4.1, key="b"),
        )
        assert found.stall is None
        assert found.hand_over == Stall(P0, "B", 0.0, 4.0)

    def test_draining_before_a_partition_moves_is_part_of_the_handover(self) -> None:
        # Records 0 and 1 of key a are finished by A although 3 waits; then B goes on with 3.
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0), (2, "b", 0.0), (3, "c", 0.0)),
            call("A", 0, 0.0, 2.0, key="a"),
            call("A", 2, 0.1, 0.2, key="b"),
            call("A", 1, 2.0, 2.1, key="a"),
            call("B", 3, 2.5, 2.6, key="c"),
        )
        assert stall_seconds(found) == 0.1
        assert found.hand_over == Stall(P0, "B", 0.1, 2.4)

    def test_a_pause_before_the_member_continues_is_a_stall_in_spite_of_late_keys(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0), (2, "b", 0.0), (3, "c", 0.0)),
            call("A", 0, 0.0, 2.0, key="a"),
            call("A", 2, 0.1, 0.2, key="b"),
            call("A", 1, 2.0, 2.1, key="a"),
            call("A", 3, 2.5, 2.6, key="c"),
        )
        assert found.stall == Stall(P0, "A", 0.1, 1.9)
        assert found.hand_over is None

    def test_pause_at_the_end_of_the_run_is_a_stall(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "a", 0.0), (2, "b", 0.0)),
            call("A", 2, 0.0, 0.1, key="b"),
            call("A", 0, 0.2, 0.3, key="a"),
            call("A", 1, 3.3, 3.4, key="a"),
        )
        assert found.stall == Stall(P0, "A", 0.3, 3.0)

    def test_partition_taken_away_and_given_back_counts_as_kept(self) -> None:
        # An eager group: A gives everything up and waits 3 s for another member's drain.
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 1.0)) + produced((0, "c", 0.0), partition=1),
            call("A", 0, 0.0, 0.1, key="a"),
            call("B", 0, 0.5, 3.5, key="c", partition=1),
            call("A", 1, 3.6, 3.7, key="b"),
        )
        assert found.stall == Stall(P0, "A", 1.0, 2.6)

    def test_the_longest_stall_of_several_partitions_is_reported(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.0))
            + produced((0, "a", 0.0), (1, "b", 0.0), partition=1),
            call("A", 0, 0.0, 0.1, key="a"),
            call("A", 1, 1.0, 1.1, key="b"),
            call("A", 0, 0.0, 0.1, key="a", partition=1),
            call("A", 1, 2.0, 2.1, key="b", partition=1),
        )
        assert found.stall == Stall(P1, "A", 0.0, 2.0)

    def test_handler_that_was_quicker_than_the_acknowledgement_does_not_wait(self) -> None:
        found = result_of(
            produced((0, "a", 0.0), (1, "b", 0.5), (2, "c", 3.0)),
            call("A", 0, 0.0, 0.1, key="a"),
            call("A", 1, 0.4, 0.45, key="b"),
            call("A", 2, 3.1, 3.2, key="c"),
        )
        assert stall_seconds(found) == 0.1


class TestMadeUpRun:
    """A long clean run in which one thing then fails: the judge finds that and nothing else."""

    @staticmethod
    def run() -> tuple[list[Produced], list[list[Line]]]:
        rng = random.Random(7)
        records: list[Produced] = []
        calls: list[list[Line]] = []
        free: dict[str, float] = {}
        for offset in range(500):
            at = offset * 0.01
            key = f"key-{rng.randrange(20)}"
            begin = max(at + 0.001, free.get(key, 0.0))
            end = begin + rng.uniform(0.001, 0.05)
            free[key] = end
            records += produced((offset, key, at))
            calls.append(call("A", offset, begin, end, key=key))
        return records, calls

    def test_clean_run_is_clean(self) -> None:
        records, calls = self.run()
        found = result_of(records, *calls)
        assert (found.lost, found.repeated, found.disorder) == ((), (), ())
        assert found.longest_stall < 0.05

    def test_one_call_removed_is_one_lost(self) -> None:
        records, calls = self.run()
        del calls[123]
        found = result_of(records, *calls)
        assert found.lost == (RecordId(P0, 123),)
        assert (found.repeated, found.disorder) == ((), ())

    def test_one_call_copied_is_one_repeated(self) -> None:
        records, calls = self.run()
        (start, _) = calls[123]
        calls.append(call("B", 123, 100.0, 100.1, key=start.key))
        found = result_of(records, *calls)
        assert found.repeated == (RecordId(P0, 123),)
        assert (found.lost, found.disorder) == ((), ())

    def test_one_call_put_off_to_the_end_is_out_of_order(self) -> None:
        records, calls = self.run()
        (start, _) = calls[123]
        calls[123] = call("A", 123, 100.0, 100.1, key=start.key)
        found = result_of(records, *calls)
        assert [each.record for each in found.disorder] == [RecordId(P0, 123)]
        assert (found.lost, found.repeated) == ((), ())

    def test_pause_of_all_calls_is_a_stall(self) -> None:
        records, calls = self.run()
        pause, length = 2.0, 1.5
        late: list[list[Line]] = []
        for start, end in calls:
            shift = length if start.at >= pause else 0.0
            late.append(call("A", start.offset, start.at + shift, end.at + shift, key=start.key))
        found = result_of(records, *late)
        assert found.stall is not None
        assert found.stall.seconds == pytest.approx(length, abs=0.05)
        assert found.stall.begin == pytest.approx(pause, abs=0.05)
        assert (found.lost, found.repeated, found.disorder) == ((), (), ())
