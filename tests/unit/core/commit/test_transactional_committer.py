"""Which records and offsets a transaction has, with processing="exactly_once"."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from unit.core.commit.scripted_commits import A, CommittingGroup, WithoutTopicIds

from asyncrevoke.client.core.commit import transactional_committer
from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.core.commit.fitting_records import TransactionRoom, that_fit
from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
from asyncrevoke.client.core.commit.transactional_committer import TransactionalCommitter
from asyncrevoke.client.core.commit.user_commits import RequestedOffsets
from asyncrevoke.client.core.io.effects import TransactionDue
from asyncrevoke.client.core.partition.completion_map import decode, encode
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.model import Record
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.config import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.commit.fitting_records import Finished
    from asyncrevoke.client.core.commit.transactional_committer import ComposedOffsets
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.core.partition.reactions import PartitionReactions


class TransactionalGroup(CommittingGroup):
    """A member that commits in transactions, and has partition A with ``count`` records."""

    def __init__(self, count: int, *, maps_are_read: bool = True, **options: object) -> None:
        super().__init__()
        config = ConsumerConfig.from_options(
            group_id="billing", processing="exactly_once", **options
        )
        maps = CommittedMaps(self.outbox, config)
        self.committer = TransactionalCommitter(
            self.outbox,
            config,
            cast("ClusterMetadata", WithoutTopicIds()),
            cast("Coordinator", self.coordinator),
            self.assignment,
            maps,
            RequestedOffsets(self.outbox),
            self,
        )
        self.commits = self.committer
        self.revocation = Revocation(
            self.outbox, config, self.assignment, cast("PartitionReactions", self)
        )
        self.revocation.successors_read_maps(maps_are_read)
        self.config = config
        self.returned = ReturnedRecords(
            self.outbox, config, self.assignment, self.revocation, self.committer, maps
        )
        self.committer.compose_with(self.revocation, self.returned)
        assert self.a.tracker is not None
        self.tracker = self.a.tracker
        self.deliver(0, count)

    def deliver(self, first: int, end: int) -> None:
        records = [
            Record("orders", 0, offset, 0, 0, None, None, (), self.tracker.tracker_id)
            for offset in range(first, end)
        ]
        self.tracker.deliver(records, end, 3)
        self.assignment.records_delivered(end - first)

    def begin(self, finished: Sequence[Finished]) -> ComposedOffsets | None:
        return self.committer.begin_transaction(1.0, {self.tracker.tracker_id: finished})

    def chosen(self, composed: ComposedOffsets | None) -> list[int]:
        assert composed is not None
        return list(composed.included.get(self.tracker.tracker_id, ()))

    def committed(self, composed: ComposedOffsets | None) -> None:
        assert composed is not None
        self.committer.transaction_committed(1.1, composed)

    def due(self) -> int:
        return sum(isinstance(effect, TransactionDue) for effect in self.outbox.take())


def entry_of(composed: ComposedOffsets | None, instance: PartitionInstance) -> tuple[int, str]:
    assert composed is not None
    entry = composed.entries[instance]
    return entry.offset, entry.metadata


def test_a_transaction_has_the_finished_records_and_the_offset_after_them() -> None:
    group = TransactionalGroup(5)
    composed = group.begin([0, 1, 2])
    assert group.chosen(composed) == [0, 1, 2]
    assert entry_of(composed, group.a) == (3, "")


def test_records_stay_in_flight_until_their_transaction_is_committed() -> None:
    group = TransactionalGroup(3)
    composed = group.begin([0, 1, 2])
    assert group.a.in_flight == 3
    assert not group.committer.is_acknowledged(group.a)
    group.committed(composed)
    assert group.a.in_flight == 0
    assert group.a.committed_offset == 3
    assert group.committer.is_acknowledged(group.a)


def test_records_beyond_an_unfinished_one_are_listed_in_the_completion_map() -> None:
    group = TransactionalGroup(5)
    offset, metadata = entry_of(group.begin([1, 2, 4]), group.a)
    known = decode(offset, metadata)
    assert known is not None
    assert (offset, known.runs) == (0, ((1, 3), (4, 5)))


def test_records_beyond_an_unfinished_one_wait_if_others_do_not_read_maps() -> None:
    group = TransactionalGroup(5, maps_are_read=False)
    composed = group.begin([0, 2, 3])
    assert group.chosen(composed) == [0]
    assert entry_of(composed, group.a) == (1, "")
    group.committed(composed)
    composed = group.begin([2, 3, 1])
    assert group.chosen(composed) == [0, 1, 2]
    assert entry_of(composed, group.a) == (4, "")


def test_no_transaction_begins_for_records_that_have_to_wait() -> None:
    group = TransactionalGroup(5, maps_are_read=False)
    composed = group.begin([2, 3])
    assert composed is not None
    assert not composed.entries
    assert group.chosen(composed) == []


def test_what_a_map_has_listed_stays_in_later_maps_that_others_need_not_read() -> None:
    group = TransactionalGroup(6)
    group.committed(group.begin([2, 3]))
    group.revocation.successors_read_maps(False)
    composed = group.begin([0, 5])
    offset, metadata = entry_of(composed, group.a)
    known = decode(offset, metadata)
    assert group.chosen(composed) == [0]
    assert known is not None
    assert (offset, known.runs) == (1, ((2, 4),))


def test_records_for_which_the_map_has_no_room_wait() -> None:
    group = TransactionalGroup(4000, completion_map=64)
    composed = group.begin(list(range(1, 4000, 3)))
    chosen = group.chosen(composed)
    _, metadata = entry_of(composed, group.a)
    assert 0 < len(chosen) < 1333
    assert chosen == list(range(len(chosen))), "the lowest offsets come first"
    assert len(metadata) <= 64
    group.committed(composed)
    group.deliver(4000, 4001)
    left = list(range(1, 4000, 3))[len(chosen) :]
    after = group.begin([0, 2, *left])
    assert after is not None
    offset, metadata = entry_of(after, group.a)
    known = decode(offset, metadata)
    assert known is not None
    assert all(
        1 + 3 * number < offset or any(a <= 1 + 3 * number < b for a, b in known.runs)
        for number in range(len(chosen))
    ), "all that was committed before is in the later map"


def test_records_that_were_handled_together_enter_one_transaction() -> None:
    group = TransactionalGroup(6, maps_are_read=False)
    composed = group.begin([(0, 1), (2, 4), 3])
    assert group.chosen(composed) == [0, 1, 2]
    group.committed(composed)
    assert group.a.committed_offset == 5
    group = TransactionalGroup(6, maps_are_read=False)
    composed = group.begin([(0, 1), (2, 4)])
    assert group.chosen(composed) == [0], "the record between is not finished"
    assert entry_of(composed, group.a) == (2, "")


def test_finished_records_from_before_a_seek_are_dropped_unless_the_new_offset_is_after_them() -> (
    None
):
    group = TransactionalGroup(10)
    former = group.tracker.tracker_id
    group.assignment.set_position(group.a, 3)
    group.a.require_commit()
    composed = group.committer.begin_transaction(1.0, {former: [0, 2, 5]})
    assert composed is not None
    assert list(composed.included[former]) == [0, 1]
    assert list(composed.dropped[former]) == [2]
    assert entry_of(composed, group.a) == (3, "")


def test_a_transaction_with_records_from_before_a_seek_alone_is_told_by_its_metadata() -> None:
    group = TransactionalGroup(10)
    former = group.tracker.tracker_id
    held = encode(3, [(4, 5)], 3, 100).metadata
    known = decode(3, held)
    group.assignment.set_position(group.a, 3, finished=known)
    group.a.set_committed(3, held)
    for finished in ([0], [1]):
        composed = group.committer.begin_transaction(1.0, {former: finished})
        assert composed is not None
        entry = composed.changed()[A]
        assert entry.offset == 3
        assert entry.metadata != held
        assert decode(3, entry.metadata) == known
        group.committed(composed)
        held = entry.metadata
        assert group.committer.entry(group.a) is None


def test_records_of_a_lost_partition_are_dropped() -> None:
    group = TransactionalGroup(3)
    group.revocation.lose(1.0, [group.a], "taken away")
    composed = group.begin([0, 1])
    assert composed is not None
    assert list(composed.dropped[group.tracker.tracker_id]) == [0, 1]
    assert group.a not in composed.entries


def test_a_partition_that_is_lost_in_a_transaction_is_not_completed_by_its_commit() -> None:
    group = TransactionalGroup(3)
    composed = group.begin([0, 1, 2])
    group.revocation.lose(1.0, [group.a], "taken away")
    group.committed(composed)
    assert group.a.committed_offset == 0
    assert group.acknowledged == []


def test_one_transaction_is_begun_at_a_time_and_the_next_one_is_due_after_it() -> None:
    group = TransactionalGroup(3)
    first = group.begin([0])
    assert group.begin([1]) is None
    assert group.due() == 0
    group.committed(first)
    assert group.due() == 1


def test_no_transaction_begins_while_the_member_may_not_commit() -> None:
    group = TransactionalGroup(3)
    group.member.may_commit = False
    group.committer.flush(1.0)
    assert group.due() == 0
    assert group.begin([0]) is None
    group.member.may_commit = True
    group.committer.resume(1.0)
    assert group.due() == 1


def test_a_position_without_finished_records_is_committed_in_a_transaction() -> None:
    group = TransactionalGroup(0)
    group.a.require_commit()
    composed = group.committer.begin_transaction(1.0, {})
    assert entry_of(composed, group.a) == (0, "")
    group.committed(composed)
    assert not group.a.commit_required


@pytest.mark.parametrize("has_epochs", [False, True])
def test_an_old_generation_costs_the_membership_and_an_old_epoch_does_not(
    has_epochs: bool,
) -> None:
    group = TransactionalGroup(3)
    group.member.has_epochs = has_epochs
    composed = group.begin([0])
    assert composed is not None
    group.committer.transaction_aborted(1.1, composed, {A: ErrorCode.illegal_generation})
    assert group.member.heard == ([] if has_epochs else [ErrorCode.illegal_generation])
    assert group.member.rebalances == int(has_epochs)
    assert group.a.in_flight == 3


def test_an_aborted_transaction_is_begun_again_after_a_backoff_or_at_once() -> None:
    group = TransactionalGroup(3)
    composed = group.begin([0])
    assert composed is not None
    group.committer.transaction_aborted(1.1, composed)
    assert group.due() == 0
    group.retry()
    assert group.due() == 1
    composed = group.begin([0])
    assert composed is not None
    group.committer.transaction_aborted(1.1, composed, at_once=True)
    assert group.due() == 1


def test_finished_records_use_no_capacity() -> None:
    group = TransactionalGroup(2000, max_in_flight=2000)
    group.returned.track(one_by_one=True)
    assert group.returned.capacity(1.0, 500) <= 0
    group.committer.records_finished(1.0, 1500, urgent=False)
    assert group.returned.capacity(1.0, 500) == 500


def test_a_map_that_the_broker_rejects_as_too_large_is_shorter_in_the_next_transaction() -> None:
    group = TransactionalGroup(4000, completion_map=512)
    finished = sorted(Random(1).sample(range(1, 4000), 1000))
    composed = group.begin(finished)
    assert composed is not None
    _, rejected = entry_of(composed, group.a)
    group.committer.transaction_aborted(1.1, composed, {A: ErrorCode.offset_metadata_too_large})
    _, metadata = entry_of(group.begin(finished), group.a)
    assert 0 < len(metadata) <= len(rejected) // 2


def test_records_that_can_be_in_no_transaction_do_not_delay_the_release() -> None:
    group = TransactionalGroup(4, maps_are_read=False)
    group.tracker.abandon(1)
    composed = group.begin([0, 2, 3])
    assert group.chosen(composed) == [0]
    group.committed(composed)
    group.revocation.request(1.2, [group.a], None)
    composed = group.begin([2, 3])
    assert composed is not None
    assert list(composed.dropped[group.tracker.tracker_id]) == [0, 1]


def test_records_beyond_one_that_is_handled_wait_for_it_at_a_revocation() -> None:
    group = TransactionalGroup(4, maps_are_read=False)
    group.revocation.request(1.0, [group.a], None)
    composed = group.begin([2, 3])
    assert composed is not None
    assert not composed.dropped


def test_records_without_room_are_not_looked_at_again_until_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[int] = []

    def counted(
        tracker: OffsetTracker, groups: Sequence[Finished], limit: int
    ) -> tuple[OffsetTracker, Sequence[int], str | None]:
        if groups:
            searches.append(len(groups))
        return that_fit(tracker, groups, limit)

    monkeypatch.setattr(transactional_committer, "that_fit", counted)
    group = TransactionalGroup(10, maps_are_read=False)
    for finished in ([2, 3], [2, 3], [2, 3, 4], [1, 2, 3, 4]):
        composed = group.begin(finished)
        assert not group.chosen(composed)
    assert searches == [2, 3, 4]
    group.revocation.successors_read_maps(True)
    composed = group.begin([1, 2, 3, 4])
    assert group.chosen(composed) == [0, 1, 2, 3]
    group.committed(composed)
    composed = group.begin([0, 6])
    assert group.chosen(composed) == [0, 1]


def test_a_transaction_takes_the_first_records_of_the_partition_that_has_waited_longest() -> None:
    group = TransactionalGroup(6)
    room = TransactionRoom(2, 100, lambda _tracker_id, _index: 10)
    composed = group.committer.begin_transaction(
        1.0, {group.tracker.tracker_id: [0, 1, 2]}, room=room
    )
    assert group.chosen(composed) == [0, 1]
    assert entry_of(composed, group.a) == (2, "")
    group.committed(composed)
    large = TransactionRoom(5, 15, lambda _tracker_id, _index: 20)
    composed = group.committer.begin_transaction(
        1.0, {group.tracker.tracker_id: [2, 3, 4]}, room=large
    )
    assert group.chosen(composed) == [0], "one record may have any size"


def test_a_rejected_epoch_is_replaced_by_the_present_one_unless_a_partition_is_lost() -> None:
    group = TransactionalGroup(3)
    composed = group.begin([0])
    assert composed is not None
    rejected = composed.identity
    renewed = group.committer.renewed_identity
    group.member.member_identity = rejected._replace(generation=rejected.generation + 1)
    assert renewed(1.1, composed, rejected) == group.member.member_identity
    assert group.member.renewals == [rejected]
    group.revocation.lose(1.2, [group.a], "taken away")
    assert renewed(1.3, composed, rejected) is None
    assert group.member.renewals == [rejected]
