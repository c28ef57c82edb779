"""What commits tell of records beyond the committed offset, and what the next owner makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.core.commit import committed_maps
from asyncrevoke.client.core.partition.completion_map import decode, encode
from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.protocol.messages import EARLIEST_TIMESTAMP, ErrorCode, OffsetCommitRequest

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.core.partition.completion_map import Run
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.messages import CommitEntry


class MapGroup(ScriptedGroup):
    """One partition of orders, and what is committed of it."""

    def committing_entry(self, number: int = 0) -> CommitEntry:
        _, request = self.only(OffsetCommitRequest)
        (entry,) = [entry for entry in request.entries if entry.partition == tp(number)]
        return entry

    def committed_map(self, number: int = 0) -> list[Run]:
        """The runs of the OffsetCommit that is open; it gets its response."""
        entry = self.committing_entry(number)
        found = decode(entry.offset, entry.metadata)
        self.respond_to_commit()
        return [] if found is None else list(found.runs)

    def take(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = self.now + 3
        while len(records) < count:
            assert self.now < deadline, records
            records.extend(self.step().records)
            self.advance(0.1)
        return records

    def finish(self, records: list[Record], *offsets: int) -> None:
        for record in records:
            if record.offset in offsets:
                assert self.complete(record)

    def told(self, event: str) -> list[dict[str, object]]:
        return [emit.fields for emit in self.events if event in emit.event]

    def skipped(self) -> int:
        return self.core.health(self.now).skipped_completed


def member(**options: Unpack[ConsumerOptions]) -> MapGroup:
    options.setdefault("commit_mode", "ack")
    group = MapGroup(**options)
    group.become_member(0)
    group.pulse = ErrorCode.none
    return group


def successor(
    offset: int, *runs: Run, produced: int = 10, **options: Unpack[ConsumerOptions]
) -> MapGroup:
    """A member that finds this map beside the committed offset."""
    return heir(offset, encode(offset, runs, 0, 512).metadata, produced, **options)


def heir(
    offset: int, metadata: str, produced: int = 10, **options: Unpack[ConsumerOptions]
) -> MapGroup:
    options.setdefault("commit_mode", "ack")
    group = MapGroup(**options)
    group.committed[tp(0)] = offset
    group.metadata[tp(0)] = metadata
    if produced:
        group.produce(0, produced)
    group.become_member(0)
    group.pulse = ErrorCode.none
    return group


def give_in_batches(group: MapGroup, *counts: int) -> list[Record]:
    """Batches that come by fetches of their own; the records that are delivered of them."""
    log = group.logs[tp(0)]
    for count in counts:
        log.append(count)
    group.produce(0, 0)
    return group.take(1)


def test_a_commit_has_a_map_of_records_completed_beyond_its_offset() -> None:
    group = member()
    group.produce(0, 10)
    records = group.take(10)
    group.finish(records, 0, 2, 3, 9)
    group.advance(1)
    assert group.committing_entry().offset == 1
    assert group.committed_map() == [(2, 4), (9, 10)]


def test_a_commit_has_no_map_while_records_complete_in_order() -> None:
    group = member()
    group.produce(0, 10)
    group.finish(group.take(10), 0, 1, 2)
    group.advance(1)
    assert group.committing_entry().offset == 3
    assert group.committing_entry().metadata == ""


def test_more_done_beyond_an_offset_that_stays_is_committed_at_the_interval() -> None:
    group = member()
    group.produce(0, 10)
    records = group.take(10)
    group.finish(records, 0, 3)
    group.advance(1)
    assert group.committed_map() == [(3, 4)]
    group.advance(5)
    assert not group.sends(OffsetCommitRequest), "nothing has changed"
    group.finish(records, 4)
    group.advance(1)
    assert group.committing_entry().offset == 1
    assert group.committed_map() == [(3, 5)]


def test_a_commit_after_a_seek_back_maps_records_completed_since_the_seek() -> None:
    group = member(commit_interval=3)
    group.produce(0, 10)
    group.finish(group.take(10), *(offset for offset in range(10) if offset not in {3, 8}))
    group.advance(3)
    assert group.committed_map() == [(4, 8), (9, 10)]
    group.core.seek(group.now, tp(0), 3)
    group.run_until_idle()
    group.finish(group.take(7), 4, 5, 7, 8, 9)
    group.advance(3)
    assert group.committing_entry().offset == 3
    assert group.committed_map() == [(4, 6), (7, 10)]


def test_the_map_is_empty_again_when_the_gap_is_closed() -> None:
    group = member()
    group.produce(0, 4)
    records = group.take(4)
    group.finish(records, 1, 2)
    group.advance(1)
    assert group.committed_map() == [(1, 3)]
    group.finish(records, 0)
    group.advance(1)
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (3, "")


def test_abandoned_records_are_not_reported_as_completed() -> None:
    group = member()
    group.produce(0, 6)
    records = group.take(6)
    for offset in (1, 3):
        group.core.returned_records.abandon_all(group.now, [records[offset]])
    group.finish(records, 0, 2, 4, 5)
    group.advance(1)
    assert group.committing_entry().offset == 1
    assert group.committed_map() == [(2, 3), (4, 6)]


def test_the_final_commit_of_a_revocation_maps_records_completed_beyond_dropped_ones() -> None:
    group = member(auto_delay_revoke=False)
    group.produce(0, 6)
    records = group.take(6)
    group.finish(records, 2)
    group.advance(1)
    group.committed_map()
    group.finish(records, 3)
    group.core.returned_records.drop_after(group.now, tp(0), 4)
    group.rebalance()
    group.rejoin()
    assert group.step().to_be_revoked == orders(0)
    assert group.poll() is None
    group.finish(records, 4)
    assert group.committed_map() == [(2, 4)], "it was under way"
    group.finish(records, 1)
    assert group.committed_map() == [(2, 5)], "the final one"
    assert group.assigned == orders(), "what ends meanwhile does not hold the release back"


def test_leaving_commits_the_map() -> None:
    group = member()
    group.produce(0, 6)
    records = group.take(6)
    group.finish(records, 0, 4)
    group.close(graceful=False)
    assert group.committing_entry().offset == 1
    assert group.committed_map() == [(4, 5)]


def test_what_a_former_owner_has_finished_is_not_delivered() -> None:
    group = successor(2, (3, 5), (7, 8))
    assert [record.offset for record in group.take(5)] == [2, 5, 6, 8, 9]
    assert group.skipped() == 3
    (line,) = group.told("skipping records completed by previous owner")
    assert line["offsets"] == 3
    (applied,) = group.told("completion map is applied")
    assert applied["runs"] == [[3, 5], [7, 8]]


def test_what_was_finished_counts_as_done() -> None:
    group = successor(2, (3, 5), (7, 8))
    records = group.take(5)
    assert not group.sends(OffsetCommitRequest), "all that is known was committed before"
    group.finish(records, 6)
    group.advance(1)
    assert group.committing_entry().offset == 2
    assert group.committed_map() == [(3, 5), (6, 8)]
    group.finish(records, 2, 5)
    group.advance(1)
    assert group.committing_entry().offset == 8


def test_completed_records_stay_in_the_map_until_the_position_reaches_them() -> None:
    group = successor(2, (5, 8), max_poll_records=2)
    first, second = group.step().records
    assert (first.offset, second.offset) == (2, 3)
    group.finish([second], 3)
    group.advance(1)
    assert group.committed_map() == [(3, 4), (5, 8)]


def test_a_map_that_was_read_is_written_with_as_much_room_as_it_had() -> None:
    runs = [(offset, offset + 1) for offset in range(2, 40, 2)]
    group = successor(0, *runs, produced=50, completion_map=16)
    records = group.take(1)
    group.finish(records, 0)
    group.advance(1)
    assert group.committing_entry().offset == 1
    assert group.committed_map() == runs


def test_a_map_that_was_read_and_is_rejected_as_too_large_is_written_within_the_own_limit() -> None:
    runs = [(offset, offset + 1) for offset in (2, 5, 9, 14, 30, 70, 111, 160)]
    group = successor(0, *runs, produced=200, completion_map=20)
    records = group.take(1)
    group.finish(records, 0)
    group.advance(1)
    group.respond_to_commit(ErrorCode.offset_metadata_too_large)
    group.advance(1)
    assert group.committing_entry().metadata == ""
    group.respond_to_commit()
    group.finish(records, 1)
    group.advance(1)
    assert 0 < len(group.committing_entry().metadata) <= 20


def test_when_all_that_is_left_was_finished_the_offset_moves_to_the_end() -> None:
    group = successor(2, (3, 10))
    (record,) = group.take(1)
    group.finish([record], 2)
    group.advance(1)
    assert group.committing_entry().offset == 10
    group.respond_to_commit()
    assert group.core.seeking.lag() == {tp(0): 0}


def test_finished_records_that_come_alone_move_the_offset_too() -> None:
    group = heir(2, encode(2, [(3, 10)], 0, 512).metadata, 0, max_partition_fetch_bytes=300)
    (record,) = give_in_batches(group, 3, 3, 4)
    group.advance(2)
    assert group.skipped() == 7
    assert group.core.position(tp(0)) == 10
    group.finish([record], 2)
    group.advance(1)
    assert group.committing_entry().offset == 10


def test_a_plain_loop_is_not_given_them_either() -> None:
    group = successor(2, (3, 10), commit_mode="processed", produced=12)
    assert [record.offset for record in group.take(3)] == [2, 10, 11]
    assert not group.step().records
    group.advance(2)
    assert group.committing_entry().offset == 12


def test_a_map_beyond_the_end_of_the_log_is_ignored_and_overwritten() -> None:
    group = successor(2, (3, 11), produced=10)
    assert [record.offset for record in group.take(8)] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert group.skipped() == 0
    (line,) = group.told("completion map ignored")
    assert (line["up_to"], line["log_end"]) == (11, 10)
    group.advance(1)
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (2, "")


def heir_of_a_log_that_begins_at(
    start: int, *runs: Run, **options: Unpack[ConsumerOptions]
) -> MapGroup:
    """Offset 2 is committed, and what lies before ``start`` of its ten records was deleted."""
    options.setdefault("commit_mode", "ack")
    options.setdefault("auto_offset_reset", "earliest")
    group = MapGroup(**options)
    group.committed[tp(0)] = 2
    group.metadata[tp(0)] = encode(2, runs, 0, 512).metadata
    group.produce(0, 10)
    group.logs[tp(0)].delete_before(start)
    group.become_member(0)
    group.pulse = ErrorCode.none
    return group


def test_what_was_finished_is_not_repeated_when_the_log_begins_behind_the_committed_offset() -> (
    None
):
    group = heir_of_a_log_that_begins_at(4, (3, 6), (7, 9))
    assert [record.offset for record in group.take(2)] == [6, 9]
    group.advance(1)
    assert group.committing_entry().offset == 6
    assert group.committed_map() == [(7, 9)]


def test_what_was_finished_is_delivered_again_when_the_user_seeks_before_it() -> None:
    group = heir_of_a_log_that_begins_at(4, (3, 6))
    group.take(1)
    group.core.seek_to(group.now, [tp(0)], EARLIEST_TIMESTAMP)
    assert [record.offset for record in group.take(6)] == [4, 5, 6, 7, 8, 9]


def test_what_was_finished_of_a_log_that_was_cut_is_delivered_again() -> None:
    group = MapGroup(commit_mode="ack", auto_offset_reset="earliest")
    group.committed[tp(0)] = 12
    group.metadata[tp(0)] = encode(12, [(13, 15)], 0, 512).metadata
    group.produce(0, 3)
    group.become_member(0)
    group.pulse = ErrorCode.none
    assert len(group.take(3)) == 3
    group.produce(0, 17)
    assert [record.offset for record in group.take(17)] == list(range(3, 20))


def test_a_map_is_compared_with_a_log_that_begins_behind_the_committed_offset_too() -> None:
    group = heir_of_a_log_that_begins_at(4, (3, 6), (7, 11))
    assert [record.offset for record in group.take(6)] == [4, 5, 6, 7, 8, 9]
    assert len(group.told("completion map ignored")) == 1


def test_records_of_a_later_leader_are_delivered_whatever_the_map_says() -> None:
    group = MapGroup(commit_mode="ack", auto_offset_reset="earliest")
    group.committed[tp(0)] = 2
    group.metadata[tp(0)] = encode(2, [(3, 10)], 0, 512).metadata
    group.produce(0, 5)
    # The log was cut after 5 records, and written anew.
    group.logs[tp(0)].leader_epoch = 1
    group.produce(0, 5)
    group.become_member(0)
    group.pulse = ErrorCode.none
    assert [record.offset for record in group.take(6)] == [2, 5, 6, 7, 8, 9]


def test_foreign_metadata_is_left_alone_until_there_is_something_to_commit() -> None:
    group = heir(2, "what another client has written")
    records = group.take(8)
    group.advance(5)
    assert not group.sends(OffsetCommitRequest)
    group.finish(records, 2)
    group.advance(1)
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (3, "")


def test_a_map_that_was_read_is_not_committed_again_before_anything_is_known_of_the_log() -> None:
    group = successor(2, (3, 5), produced=0)
    group.core.commit(group.now)
    group.run_until_idle()
    assert not group.sends(OffsetCommitRequest)
    group.produce(0, 10)
    assert group.take(1)[0].offset == 2


def test_with_maps_disabled_none_is_written_and_none_is_read() -> None:
    group = successor(2, (3, 5), completion_map=0)
    records = group.take(8)
    assert [record.offset for record in records] == [2, 3, 4, 5, 6, 7, 8, 9]
    group.finish(records, 2, 7)
    group.advance(1)
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (3, "")


def test_in_manual_mode_only_the_users_metadata_is_committed() -> None:
    group = successor(2, (3, 5), commit_mode="manual")
    records = group.take(8)
    assert [record.offset for record in records][:3] == [2, 3, 4]
    group.core.commit(group.now, {tp(0): OffsetAndMetadata(4, "mine")})
    group.run_until_idle()
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (4, "mine")


def test_a_rewind_passes_what_was_finished_again() -> None:
    group = successor(2, (5, 8), auto_delay_revoke=True)
    records = group.take(5)
    assert [record.offset for record in records] == [2, 3, 4, 8, 9]
    group.rebalance()
    group.rejoin()
    group.step()
    group.finish(records, 2)
    group.core.returned_records.drop_after(group.now, tp(0), 3)
    group.rebalance()
    group.rejoin(0)
    assert [record.offset for record in group.take(3)] == [4, 8, 9]


@pytest.mark.parametrize(
    "error", [ErrorCode.offset_metadata_too_large, ErrorCode.invalid_commit_offset_size]
)
def test_a_map_that_the_broker_rejects_is_left_out_and_smaller_from_then_on(
    error: ErrorCode,
) -> None:
    group = member()
    group.produce(0, 400)
    records = group.take(400)
    group.finish(records, *range(0, 200, 2))
    group.advance(1)
    rejected = len(group.committing_entry().metadata)
    assert rejected > 40
    group.respond_to_commit(error)
    assert (group.committing_entry().offset, group.committing_entry().metadata) == (1, "")
    group.respond_to_commit()
    group.finish(records, *range(200, 400, 2))
    group.advance(1)
    assert 0 < len(group.committing_entry().metadata) <= rejected // 2
    assert group.committing_entry().offset == 1


def test_an_offset_without_metadata_that_is_rejected_as_too_large_is_committed_again_later() -> (
    None
):
    group = member()
    group.produce(0, 2)
    group.finish(group.take(2), 0)
    group.advance(1)
    group.respond_to_commit(ErrorCode.invalid_commit_offset_size)
    assert not group.sends(OffsetCommitRequest)
    group.advance(1)
    assert group.committing_entry().offset == 1


def test_a_partition_waits_when_a_crash_would_repeat_too_much_and_the_others_continue() -> None:
    group = MapGroup(
        commit_mode="ack",
        auto_offset_reset="earliest",
        max_in_flight=100,
        completion_map=40,
        max_poll_records=50,
    )
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    kept: list[Record] = []
    delivered = 0
    for _ in range(40):
        group.produce(0, 20)
        for record in group.step().records:
            delivered += 1
            # Every seventh record of the first ones never ends, so that the map has many runs.
            if record.offset < 500 and record.offset % 7 == 0:
                kept.append(record)
            else:
                group.complete(record)
        group.advance(1)
        if group.sends(OffsetCommitRequest):
            group.respond_to_commit()
    (line,) = group.told("delivery of its partition paused")
    assert line["offset"] == 0
    assert delivered < 400
    assert group.receive(1), "the other partition is not concerned"
    for record in kept:
        group.complete(record)
    group.advance(2)
    assert group.told("partition resumed")
    assert group.take(1)


def test_what_is_kept_beyond_a_stuck_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_maps, "_WIDEST", 300)
    group = member(completion_map=0, max_poll_records=100)
    group.produce(0, 1000)
    (stuck, *rest) = group.take(100)
    group.finish(rest, *range(1000))
    for _ in range(20):
        for record in group.step().records:
            group.complete(record)
        group.advance(0.3)
    assert group.core.position(tp(0)) == 400
    assert group.told("delivery of its partition paused")
    group.complete(stuck)
    group.advance(2)
    assert group.take(100)
