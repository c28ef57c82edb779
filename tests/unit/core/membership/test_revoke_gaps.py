"""Records that were not started, below others that are done, when their partition is revoked."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, foreign, orders

from asyncrevoke.client.core.membership.classic.user_data import (
    decode_assignment_user_data,
    reads_maps,
)
from asyncrevoke.client.core.partition.completion_map import decode
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupMember,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from asyncrevoke.client.protocol.subscription import decode_assignment, decode_subscription

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.config.consumer_options import RevokeGaps
    from asyncrevoke.client.model import Record

# Larger than any offset: no gap may be dropped.
ALL_KEPT = 1 << 40


def working(
    count: int, *, maps_are_read: bool = True, **options: Unpack[ConsumerOptions]
) -> tuple[ScriptedGroup, list[Record]]:
    """A member with ``count`` records of partition 1 in flight."""
    options.setdefault("commit_mode", "ack")
    options.setdefault("commit_interval", 60.0)
    group = ScriptedGroup(**options)
    group.maps_are_read = maps_are_read
    group.become_member(0, 1)
    group.pulse = ErrorCode.none
    group.produce(1, count)
    return group, take(group, count)


def take(group: ScriptedGroup, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = group.now + 5
    while len(records) < count:
        assert group.now < deadline, records
        records.extend(group.step().records)
        group.advance(0.1)
    return records


def finish(group: ScriptedGroup, records: list[Record]) -> None:
    group.core.returned_records.complete_all(group.now, records)
    group.run_until_idle()


def announce(group: ScriptedGroup) -> None:
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    while group.sends(OffsetCommitRequest):
        group.respond_to_commit()


def drop(group: ScriptedGroup, records: list[Record], *gaps: int) -> None:
    """Drop these, and what comes after offset 7, the last one that was started."""
    group.core.returned_records.drop_after(group.now, tp(1), 7)
    group.core.returned_records.abandon_all(group.now, [records[offset] for offset in gaps])
    group.run_until_idle()


def droppable(group: ScriptedGroup, unstarted: list[Record]) -> int:
    return group.core.returned_records.droppable_from(tp(1), unstarted)


# --- what may be dropped -------------------------------------------------------------------------


def test_gaps_may_be_dropped_if_every_member_reads_completion_maps() -> None:
    group, records = working(100)
    finish(group, records[50:])
    announce(group)
    assert droppable(group, records[1:50]) == 0


def test_gaps_are_processed_if_a_member_does_not_read_completion_maps() -> None:
    group, records = working(100, maps_are_read=False)
    finish(group, records[50:])
    announce(group)
    assert droppable(group, records[1:50]) > ALL_KEPT


def test_gaps_are_processed_where_the_completion_map_is_switched_off() -> None:
    group, records = working(100, completion_map=0)
    finish(group, records[50:])
    announce(group)
    assert droppable(group, records[1:50]) > ALL_KEPT


def test_gaps_may_be_dropped_in_any_group_if_duplicates_are_accepted() -> None:
    group, records = working(100, maps_are_read=False, revoke_gaps="drop", completion_map=0)
    finish(group, records[50:])
    announce(group)
    assert droppable(group, records[1:50]) == 0


@pytest.mark.parametrize("gaps", ["process", "drop"])
def test_with_kip_848_an_option_decides_whether_maps_are_written(gaps: RevokeGaps) -> None:
    group = ScriptedConsumerGroup(commit_mode="ack", revoke_gaps=gaps)
    group.join(1)
    group.produce(1, 10)
    records = take(group, 10)
    finish(group, records[5:])
    assert (droppable(group, records[1:5]) > ALL_KEPT) == (gaps == "process")


def test_the_assignment_that_was_received_last_reports_who_reads_maps() -> None:
    group, records = working(100)
    finish(group, records[50:])
    group.maps_are_read = False
    announce(group)
    assert droppable(group, records[1:50]) > ALL_KEPT


def test_gaps_below_what_the_map_has_room_for_are_processed() -> None:
    """Every second record is done, more than 64 characters can tell."""
    group, records = working(1000, completion_map=64)
    finish(group, records[1::2])
    announce(group)
    first = droppable(group, records[2::2])
    assert 0 < first < 1000
    group.core.returned_records.abandon_all(
        group.now, [record for record in records[2::2] if record.offset >= first]
    )
    finish(group, [record for record in records[::2] if record.offset < first])
    group.poll()
    _, request = group.only(OffsetCommitRequest)
    (entry,) = [entry for entry in request.entries if entry.partition == tp(1)]
    known = decode(entry.offset, entry.metadata)
    assert known is not None
    told = {offset for run in known.runs for offset in range(*run)}
    done = {record.offset for record in records[1::2]} | set(range(first))
    assert told | set(range(entry.offset)) == done, "nothing that is done is repeated"


def test_a_released_partition_has_its_gaps_in_the_last_commit() -> None:
    group, records = working(10)
    finish(group, records[4:6])
    announce(group)
    drop(group, records, 1, 2, 6)
    assert group.poll() is None
    finish(group, [records[0], records[3], records[7]])
    _, request = group.only(OffsetCommitRequest)
    (entry,) = [entry for entry in request.entries if entry.partition == tp(1)]
    known = decode(entry.offset, entry.metadata)
    assert known is not None
    assert (entry.offset, known.runs) == (1, ((3, 6), (7, 8)))
    assert group.assigned == orders(0, 1)
    group.respond_to_commit()
    assert group.assigned == orders(0)


def test_a_final_commit_whose_map_is_too_large_is_tried_again_with_a_smaller_one() -> None:
    group, records = working(400)
    rng = Random(1)
    done = [record for record in records[1:390] if rng.random() < 0.5]
    finish(group, done)
    announce(group)
    left = [record for record in records if record not in done]
    group.core.returned_records.abandon_all(group.now, left[:-1])
    group.run_until_idle()
    assert group.poll() is None
    finish(group, left[-1:])
    sizes: list[int] = []
    begun = group.now
    while True:
        _, request = group.only(OffsetCommitRequest)
        (entry,) = [entry for entry in request.entries if entry.partition == tp(1)]
        assert entry.offset == 0
        sizes.append(len(entry.metadata))
        if sizes[-1] <= 40:
            break
        group.respond_to_commit(ErrorCode.offset_metadata_too_large)
    assert len(sizes) > 1
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] > 0, "what fits is told"
    group.respond_to_commit()
    assert group.assigned == orders(0)
    assert group.now == begun, "no attempt waits"


def test_a_final_commit_is_made_without_a_map_where_the_broker_takes_none() -> None:
    group, records = working(10)
    finish(group, records[1:5])
    announce(group)
    group.core.returned_records.abandon_all(group.now, [records[0], *records[6:]])
    group.run_until_idle()
    assert group.poll() is None
    finish(group, [records[5]])
    for _ in range(8):
        _, request = group.only(OffsetCommitRequest)
        if not any(entry.metadata for entry in request.entries):
            break
        group.respond_to_commit(ErrorCode.offset_metadata_too_large)
    group.respond_to_commit()
    assert group.assigned == orders(0)


# --- a revoke that is withdrawn ------------------------------------------------------------------


def withdrawn(group: ScriptedGroup) -> None:
    group.rebalance()
    group.rejoin(0, 1)
    group.advance(0.6)  # the fetch for the other partition waits for half a second


def test_a_withdrawn_revoke_reads_dropped_gaps_again_and_nothing_that_is_done_or_runs() -> None:
    group, records = working(10)
    finish(group, records[4:6])
    announce(group)
    drop(group, records, 1, 2, 6)
    withdrawn(group)
    again = take(group, 5)
    assert [each.offset for each in again] == [1, 2, 6, 8, 9]
    finish(group, [records[0], records[3], records[7], *again])
    while group.sends(OffsetCommitRequest):
        group.respond_to_commit()
    group.advance(61)
    assert group.committing()[tp(1)] == 10
    assert group.core.assignment.in_flight == 0


def test_a_second_revoke_drops_again_what_the_first_had_dropped() -> None:
    group, records = working(10)
    finish(group, records[4:])
    announce(group)
    group.core.returned_records.abandon_all(group.now, records[1:4])
    withdrawn(group)
    again = take(group, 3)
    announce(group)
    group.core.returned_records.abandon_all(group.now, again[1:])
    withdrawn(group)
    assert [each.offset for each in take(group, 2)] == [2, 3]
    assert group.core.assignment.in_flight == 4


# --- who tells -----------------------------------------------------------------------------------


def ours(member_id: str, request: JoinGroupRequest) -> JoinGroupMember:
    """Another member of ours, with the subscription of this one."""
    return JoinGroupMember(
        member_id=member_id, group_instance_id=None, metadata=request.protocols[0][1]
    )


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("options", "read"),
    [({}, True), ({"completion_map": 0}, False), ({"commit_mode": "manual"}, False)],
)
def test_a_member_reports_in_its_user_data_whether_it_reads_maps(
    assignor: str, options: ConsumerOptions, *, read: bool
) -> None:
    options["assignors"] = (assignor,)
    group = ScriptedGroup(**options)
    group.start()
    group.give_id()
    subscription = decode_subscription(group.joining().protocols[0][1])
    assert reads_maps(subscription.user_data) is read


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("stranger", [False, True])
def test_the_leader_reports_to_members_of_this_library_whether_all_read_maps(
    *, eager: bool, stranger: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    request = group.joining()
    others = [ours("other", request), *([foreign("java")] if stranger else [])]
    group.respond_to_join(leads=True, others=tuple(others))
    _, sync = group.only(SyncGroupRequest)
    notes = {
        member_id: decode_assignment_user_data(decode_assignment(data)[1])
        for member_id, data in sync.assignments
    }
    assert notes.pop("java", None) is None
    assert len(notes) == 2
    for note in notes.values():
        assert note is not None
        assert note.maps_are_read is not stranger


@pytest.mark.parametrize("eager", [False, True])
def test_of_static_members_the_leader_of_an_eager_group_does_not_know_who_reads_maps(
    *, eager: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    request = group.joining()
    static = ours("other", request)
    static = structs.replace(static, group_instance_id="static")
    group.respond_to_join(leads=True, others=(static,))
    _, sync = group.only(SyncGroupRequest)
    notes = [
        decode_assignment_user_data(decode_assignment(data)[1]) for _, data in sync.assignments
    ]
    assert None not in notes, "a static leader that comes back needs the rest of it"
    read = [note is not None and note.maps_are_read for note in notes]
    assert read == [not eager] * 2
