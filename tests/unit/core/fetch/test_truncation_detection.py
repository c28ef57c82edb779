"""What was read is compared with the log of a new leader (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld, ScriptedBatch, asked, data
from unit.core.scripted_environment import NODES, topic, tp

from asyncrevoke.client.core.io.effects import Channel, FailureKind
from asyncrevoke.client.core.partition.instance import InstanceTransition, PartitionInstance
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.errors import PartitionsError, TopicAuthorizationError
from asyncrevoke.client.protocol.messages import (
    EpochEnd,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions


class EpochWorld(FetchWorld):
    """Partition 0 of "orders" is led by broker 1 since epoch 2; batches are of epoch 0."""

    def __init__(self, partitions: int = 1, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(partitions, **options)
        self.advance(1.0)

    def start(self, position: int, epoch: int, number: int = 0) -> PartitionInstance:
        instance = PartitionInstance(tp(number), number)
        instance.transition(InstanceTransition.POSITIONED)
        self.instances[number] = instance
        self.place_in(instance, position, epoch)
        return instance

    def place_in(self, instance: PartitionInstance, position: int, epoch: int) -> None:
        tracker_id = 1 if instance.tracker is None else instance.tracker.tracker_id + 1
        instance.tracker = OffsetTracker(tracker_id, position, epoch)
        instance.buffer = RecordBuffer(instance.partition, tracker_id, position, leader_epoch=epoch)
        self.fetching.add(instance)
        self.plan()

    def elect(self, leader: int, epoch: int) -> None:
        self.cluster.refresh(self.now, "a test elects a leader")
        self.advance(0.2)
        self.respond_to_metadata(topic("orders", {0: leader}, epoch=epoch))
        self.plan()

    def end_of(self, epoch: int, offset: int, error: ErrorCode = ErrorCode.none) -> None:
        send, _ = self.only(OffsetsForLeaderEpochRequest)
        end = EpochEnd(partition=tp(0), error=error, epoch=epoch, offset=offset)
        self.reply(send, OffsetsForLeaderEpochResponse(ends=(end,)))
        self.plan()

    def fetched_from(self) -> dict[int, int] | None:
        sends = self.sends(FetchRequest)
        if not sends:
            return None
        (send,) = sends
        assert isinstance(send.message, FetchRequest)
        return asked(send.message)


def test_a_committed_offset_of_an_older_epoch_is_checked_before_the_first_fetch() -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    send, request = world.only(OffsetsForLeaderEpochRequest)
    assert (send.node, send.channel) == (NODES[1], Channel.METADATA)
    (query,) = request.queries
    assert (query.partition, query.epoch, query.leader_epoch) == (tp(0), 1, 2)
    assert world.fetched_from() is None
    world.end_of(1, 50)
    assert world.fetched_from() == {0: 50}


@pytest.mark.parametrize("epoch", [-1, 2])
def test_an_offset_of_the_present_epoch_or_of_an_unknown_one_is_fetched_at_once(
    epoch: int,
) -> None:
    world = EpochWorld()
    world.start(50, epoch)
    assert world.sends(OffsetsForLeaderEpochRequest) == []
    assert world.fetched_from() == {0: 50}


def test_a_new_leader_is_asked_once_and_then_fetched_from_with_its_epoch() -> None:
    world = EpochWorld()
    world.start(50, epoch=2)
    world.respond(1, data(0, "50+5"))
    world.collect()
    world.wait_out(1)
    world.fail(world.fetch_of(1, 0))
    world.elect(leader=2, epoch=3)
    assert world.only(OffsetsForLeaderEpochRequest)[0].node == NODES[2]
    world.end_of(0, 55)
    (send,) = world.sends(FetchRequest)
    assert send.node == NODES[2]
    assert isinstance(send.message, FetchRequest)
    assert send.message.partitions[0].leader_epoch == 3
    world.respond(2)
    world.advance(1.0)
    world.plan()
    assert world.sends(OffsetsForLeaderEpochRequest) == []


def test_a_log_truncated_before_the_position_is_an_error_and_is_not_fetched() -> None:
    world = EpochWorld()
    instance = world.start(50, epoch=1)
    world.end_of(1, 40)
    assert world.truncated == [(0, 40, 1)]
    world.advance(60)
    world.plan()
    assert world.fetched_from() is None
    world.place_in(instance, 40, epoch=1)
    world.end_of(1, 40)
    assert world.fetched_from() == {0: 40}


def test_a_leader_that_knows_of_no_such_epoch_cannot_say_where_the_log_was_cut() -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    world.end_of(-1, -1)
    assert world.truncated == [(0, None, -1)]


def test_records_that_were_cut_off_before_they_were_delivered_are_fetched_again() -> None:
    world = EpochWorld()
    world.start(50, epoch=0)
    world.end_of(0, 60)
    world.respond(1, data(0, "50+5 55+5"))
    assert world.collect(5) == {0: [50, 51, 52, 53, 54]}
    world.fail(world.fetch_of(1, 0))
    world.elect(leader=2, epoch=3)
    world.end_of(0, 57)
    assert world.collect() == {}, "what was cut off is delivered"
    world.end_of(0, 57)
    assert world.truncated == []
    assert world.fetched_from() == {0: 55}


def test_nothing_of_a_later_epoch_than_the_leaders_is_kept() -> None:
    buffer = RecordBuffer(tp(0), 1, 0)
    buffer.append([ScriptedBatch(0, 50, leader_epoch=3), ScriptedBatch(50, 50, leader_epoch=5)])
    assert buffer.diverges_at(5, 100) == 100
    # Another leader went on with epoch 3 where ours began epoch 5.
    assert buffer.diverges_at(3, 60) == 50
    assert buffer.diverges_at(3, 40) == 40


def test_a_response_is_ignored_after_a_seek() -> None:
    world = EpochWorld()
    instance = world.start(50, epoch=1)
    send, _ = world.only(OffsetsForLeaderEpochRequest)
    world.place_in(instance, 10, epoch=-1)
    assert world.fetched_from() == {0: 10}
    end = EpochEnd(partition=tp(0), error=ErrorCode.none, epoch=1, offset=5)
    world.reply(send, OffsetsForLeaderEpochResponse(ends=(end,)))
    assert world.truncated == []


def test_a_response_for_a_partition_that_is_gone_is_ignored() -> None:
    world = EpochWorld()
    instance = world.start(50, epoch=1)
    world.fetching.remove(instance)
    world.end_of(1, 40)
    assert world.truncated == []


def test_while_it_is_revoked_nothing_is_decided_and_after_a_withdrawal_it_is_checked() -> None:
    world = EpochWorld()
    instance = world.start(50, epoch=1)
    instance.transition(InstanceTransition.REVOKE)
    world.end_of(1, 40)
    assert world.truncated == []
    instance.transition(InstanceTransition.WITHDRAW)
    world.fetching.add(instance)
    world.plan()
    world.end_of(1, 40)
    assert world.truncated == [(0, 40, 1)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
    ],
)
def test_a_leader_that_has_moved_meanwhile_is_looked_up_and_asked_again(error: ErrorCode) -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    world.end_of(-1, -1, error)
    assert world.truncated == []
    world.respond_to_metadata(topic("orders", {0: 3}, epoch=4))
    world.plan()
    send, request = world.only(OffsetsForLeaderEpochRequest)
    assert (send.node, request.queries[0].leader_epoch) == (NODES[3], 4)
    world.end_of(1, 60)
    assert world.fetched_from() == {0: 50}
    assert world.named("waiting to validate the position after a leader change") == []


def test_a_leader_that_does_not_respond_is_asked_again_and_that_is_said() -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    for _ in range(2):
        world.fail(world.only(OffsetsForLeaderEpochRequest)[0], FailureKind.TIMEOUT, "too slow")
        world.respond_to_metadata(topic("orders", {0: 1}, epoch=2))
        world.advance(0.5)
        world.plan()
    (line,) = world.named("waiting to validate the position after a leader change")
    assert line.fields["reason"] == "too slow"
    world.end_of(1, 60)
    assert world.fetched_from() == {0: 50}


def test_a_leader_that_leaves_a_partition_out_is_asked_again() -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    world.reply(world.only(OffsetsForLeaderEpochRequest)[0], OffsetsForLeaderEpochResponse(ends=()))
    world.plan()
    assert world.fetched_from() is None
    world.advance(0.2)
    world.end_of(1, 60)
    assert world.fetched_from() == {0: 50}


def test_truncation_is_not_checked_on_a_broker_without_that_request() -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    world.fail(world.only(OffsetsForLeaderEpochRequest)[0], FailureKind.UNSUPPORTED)
    world.plan()
    assert world.fetched_from() == {0: 50}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.topic_authorization_failed, TopicAuthorizationError),
        (ErrorCode.invalid_request, PartitionsError),
    ],
)
def test_a_rejection_is_reported_once_and_asked_again_slowly(
    error: ErrorCode, kind: type[Exception]
) -> None:
    world = EpochWorld()
    world.start(50, epoch=1)
    for _ in range(2):
        world.end_of(-1, -1, error)
        world.advance(5.0)
        assert world.sends(OffsetsForLeaderEpochRequest) == []
        world.advance(6.0)
    assert [type(e) for e in world.errors] == [kind]
    world.end_of(1, 60)
    assert world.fetched_from() == {0: 50}


def test_a_leader_older_than_what_was_read_is_not_asked_before_the_metadata_is_fresh() -> None:
    world = EpochWorld()
    world.start(50, epoch=3)
    assert world.fetched_from() is None
    world.respond_to_metadata(topic("orders", {0: 2}, epoch=3))
    world.plan()
    assert world.fetched_from() == {0: 50}
    assert world.sends(OffsetsForLeaderEpochRequest) == []


def test_a_topic_whose_epochs_began_again_is_read_after_a_while() -> None:
    world = EpochWorld()
    world.start(50, epoch=3)
    for _ in range(10):
        assert world.fetched_from() is None
        if world.sends(MetadataRequest):
            world.respond_to_metadata(topic("orders", {0: 1}, epoch=2))
        world.advance(0.1)
        world.plan()
    world.advance(1.0)
    world.plan()
    assert world.fetched_from() == {0: 50}


def test_the_positions_of_many_partitions_are_checked_by_one_request_per_leader() -> None:
    world = EpochWorld(300)
    for number in range(300):
        instance = PartitionInstance(tp(number), number)
        instance.transition(InstanceTransition.POSITIONED)
        instance.tracker = OffsetTracker(1, 50, 1)
        instance.buffer = RecordBuffer(tp(number), 1, 50, leader_epoch=1)
        world.fetching.add(instance)
    world.plan()
    sends = world.sends(OffsetsForLeaderEpochRequest)
    assert {send.node.node_id for send in sends} == {1, 2, 3}
    assert len(sends) == 3
