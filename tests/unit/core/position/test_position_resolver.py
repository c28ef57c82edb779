from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
from unit.core.position.position_world import (
    NONE,
    WALL,
    PositionWorld,
    asked,
    committed,
    failed,
    listed,
)
from unit.core.scripted_environment import NODES, topic, tp

from asyncrevoke.client.core.io.effects import Channel, FailureKind
from asyncrevoke.client.core.partition.instance import (
    InstanceState,
    InstanceTransition,
    PartitionInstance,
)
from asyncrevoke.client.errors import (
    AuthenticationError,
    GroupAuthorizationError,
    NoOffsetError,
    OffsetOutOfRangeError,
    PartitionsError,
    TopicAuthorizationError,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ErrorCode,
    FetchedOffset,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    Response,
)

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerOptions


def test_all_committed_offsets_are_asked_for_at_once_on_the_commit_channel() -> None:
    world = PositionWorld()
    a, b = world.find(0, 1)
    send, request = world.only(OffsetFetchRequest)
    assert (send.node, send.channel) == (NODES[2], Channel.COMMIT)
    assert (request.partitions, request.require_stable) == ((tp(0), tp(1)), True)
    world.commits_are(committed(0, 42, epoch=7), committed(1, 0))
    assert world.found == {a: (42, 7, False), b: (0, -1, False)}
    assert world.sends(ListOffsetsRequest) == []
    assert "positions" not in world.timers


def test_those_asked_for_meanwhile_follow_in_the_next_request() -> None:
    world = PositionWorld()
    world.find(0)
    world.find(1, 2)
    assert world.commits_are(committed(0, 1)).partitions == (tp(0),)
    assert world.commits_are(committed(1, 1), committed(2, 1)).partitions == (tp(1), tp(2))
    assert len(world.found) == 3


@pytest.mark.parametrize(
    ("policy", "timestamp"), [("earliest", EARLIEST_TIMESTAMP), ("latest", LATEST_TIMESTAMP)]
)
def test_without_a_committed_offset_the_reset_policy_is_asked_of_the_leaders(
    policy: str, timestamp: int
) -> None:
    world = PositionWorld(auto_offset_reset=policy)  # type: ignore[arg-type]
    a, b = world.find(0, 1)
    world.commits_are(committed(0, -1), committed(1, -1))
    first, second = world.sends(ListOffsetsRequest)
    assert (first.node, second.node) == (NODES[1], NODES[2])
    assert isinstance(first.message, ListOffsetsRequest)
    assert asked(first.message) == {0: timestamp}
    assert first.message.queries[0].leader_epoch == 2
    world.reply(first, ListOffsetsResponse(offsets=(listed(0, 10),)))
    world.reply(second, ListOffsetsResponse(offsets=(listed(1, 20),)))
    assert world.found == {a: (10, 2, True), b: (20, 2, True)}
    lines = [line.fields["offsets"] for line in world.named("position is reset")]
    assert lines == [{"orders-0": 10}, {"orders-1": 20}]


def test_positions_that_one_response_resets_share_a_log_line_with_their_offsets() -> None:
    world = PositionWorld(partitions=900)
    numbers = range(0, 900, 3)  # those with the same leader
    world.find(*numbers)
    world.commits_are(*(committed(number, -1) for number in numbers))
    world.log_is(*(listed(number, number) for number in numbers))
    (line,) = world.named("position is reset")
    assert line.level == "info"
    assert (line.fields["policy"], line.fields["count"]) == ("earliest", 300)
    offsets = cast("dict[str, int]", line.fields["offsets"])
    assert len(offsets) == 100
    assert offsets["orders-3"] == 3


@pytest.mark.parametrize("group_id", ["billing", None])
def test_no_wait_for_the_first_metadata_of_a_topic_is_logged(group_id: str | None) -> None:
    world = PositionWorld(group_id=group_id)
    instance = PartitionInstance(TopicPartition("orders.dlq", 0), 7)
    world.positions.find(world.now, [instance])
    world.know(topic("orders.dlq", {0: 1}, epoch=2))
    if group_id is not None:
        send, _ = world.only(OffsetFetchRequest)
        nothing = FetchedOffset(partition=instance.partition, error=NONE, offset=-1)
        world.reply(send, OffsetFetchResponse(error=NONE, offsets=(nothing,)))
    world.log_is(ListedOffset(partition=instance.partition, error=NONE, offset=3, leader_epoch=2))
    assert world.found == {instance: (3, 2, True)}
    assert not world.named("waiting for the position of a partition")


def test_a_duration_looks_back_from_now_and_ends_at_the_end_read_before() -> None:
    world = PositionWorld(auto_offset_reset=timedelta(hours=1))
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    assert asked(world.log_is(listed(0, 900))) == {0: LATEST_TIMESTAMP}
    request = world.log_is(listed(0, -1))
    assert asked(request) == {0: WALL + 100 - 3_600_000}
    # A record may have arrived after the end was read: it must not be skipped.
    assert world.found == {a: (900, 2, True)}


def test_a_duration_finds_the_first_record_that_is_young_enough() -> None:
    world = PositionWorld(auto_offset_reset=timedelta(hours=1))
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    world.log_is(listed(0, 900))
    world.log_is(listed(0, 700))
    assert world.found == {a: (700, 2, True)}


def test_the_policy_error_is_reported_and_the_instance_left_alone() -> None:
    world = PositionWorld(auto_offset_reset="error")
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    world.advance(60)
    assert [type(error) for error in world.errors] == [NoOffsetError]
    assert world.found == {}
    assert a.state is InstanceState.INIT
    assert world.sends(OffsetFetchRequest) == []


def test_without_a_group_the_policy_decides_at_once() -> None:
    world = PositionWorld(group_id=None)
    (a,) = world.find(0)
    world.log_is(listed(0, 3))
    assert world.found == {a: (3, 2, True)}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.unstable_offset_commit,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
        ErrorCode.stale_member_epoch,
        ErrorCode.illegal_generation,
        ErrorCode.group_id_not_found,
        ErrorCode.invalid_request,
    ],
)
@pytest.mark.parametrize("of_the_group", [True, False])
def test_an_error_never_leads_to_the_reset_policy(error: ErrorCode, of_the_group: bool) -> None:
    world = PositionWorld(auto_offset_reset="latest")
    (a,) = world.find(0)
    for _ in range(4):
        offsets = () if of_the_group else (failed(0, error),)
        world.commits_are(*offsets, error=error if of_the_group else NONE)
        assert world.sends(OffsetFetchRequest) == [], "not asked again at once"
        world.advance(10)
        assert world.sends(ListOffsetsRequest) == []
    fields = world.named("waiting for the position of a partition")[0].fields
    assert fields["waiting_for"] == "its committed offset"
    assert str(fields["reason"]).startswith(error.name)
    world.commits_are(committed(0, 42))
    assert world.found == {a: (42, -1, False)}
    assert len(world.named("all positions are known")) == 1


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"processing": "exactly_once", "transaction_timeout": 15.0}, 35),
        ({}, 80),
    ],
)
def test_an_offset_that_stays_in_an_open_transaction_is_reported_once(
    options: ConsumerOptions, seconds: int
) -> None:
    event = "a committed offset is pending for longer than a transaction may last"
    world = PositionWorld(**options)
    (a,) = world.find(0)
    for waited in range(0, 200, 5):
        world.commits_are(failed(0, ErrorCode.unstable_offset_commit))
        assert len(world.named(event)) == (waited > seconds)
        world.advance(5)
    assert world.named(event)[0].fields["partition"] == str(a.partition)
    world.commits_are(committed(0, 42))
    assert world.found == {a: (42, -1, False)}


@pytest.mark.parametrize(
    "reply",
    [
        OffsetFetchResponse(error=NONE, offsets=()),
        OffsetFetchResponse(error=NONE, offsets=(committed(0, -7),)),
        HeartbeatResponse(error=NONE),
    ],
)
def test_a_response_without_an_offset_is_not_taken_for_no_offset(reply: Response) -> None:
    world = PositionWorld(auto_offset_reset="latest")
    world.find(0)
    world.reply(world.only(OffsetFetchRequest)[0], reply)
    world.advance(1)
    world.only(OffsetFetchRequest)
    assert (world.found, world.errors) == ({}, [])


def test_when_the_coordinator_has_moved_it_is_looked_for() -> None:
    world = PositionWorld()
    (a,) = world.find(0)
    world.commits_are(error=ErrorCode.not_coordinator)
    send, _ = world.only(FindCoordinatorRequest)
    world.reply(send, FindCoordinatorResponse(error=NONE, node_id=3, host="b3", port=9092))
    world.advance(1)
    assert world.only(OffsetFetchRequest)[0].node == NODES[3]
    world.commits_are(committed(0, 5))
    assert world.found == {a: (5, -1, False)}


@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMEOUT])
def test_after_a_lost_response_the_request_is_sent_again(kind: FailureKind) -> None:
    world = PositionWorld(auto_offset_reset="latest")
    (a,) = world.find(0)
    world.fail(world.only(OffsetFetchRequest)[0], kind)
    send, _ = world.only(FindCoordinatorRequest)
    world.reply(send, FindCoordinatorResponse(error=NONE, node_id=2, host="b2", port=9092))
    world.advance(1)
    world.commits_are(committed(0, 5))
    assert world.found == {a: (5, -1, False)}


def test_a_group_that_is_forbidden_is_fatal() -> None:
    world = PositionWorld()
    world.find(0)
    world.commits_are(error=ErrorCode.group_authorization_failed)
    world.advance(100)
    assert [type(error) for error in world.errors] == [GroupAuthorizationError]
    assert world.sends(OffsetFetchRequest) == []


def test_rejected_credentials_are_fatal() -> None:
    world = PositionWorld()
    world.find(0)
    world.fail(world.only(OffsetFetchRequest)[0], FailureKind.AUTHENTICATION, "wrong password")
    world.advance(100)
    assert [type(error) for error in world.errors] == [AuthenticationError]
    assert world.sends(OffsetFetchRequest) == []


def test_a_forbidden_topic_is_reported_once_and_tried_slowly_while_others_continue() -> None:
    world = PositionWorld()
    a, b = world.find(0, 1)
    world.commits_are(failed(0, ErrorCode.topic_authorization_failed), committed(1, 5))
    assert list(world.found) == [b]
    for _ in range(3):
        assert world.sends(OffsetFetchRequest) == []
        world.advance(10)
        world.commits_are(failed(0, ErrorCode.topic_authorization_failed))
    assert [type(error) for error in world.errors] == [TopicAuthorizationError]
    world.advance(10)
    world.commits_are(committed(0, 6))
    assert world.found[a] == (6, -1, False)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
    ],
)
def test_a_leader_that_moved_is_looked_up_and_asked(error: ErrorCode) -> None:
    world = PositionWorld(1)
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    world.advance(1)
    world.log_is(ListedOffset(partition=tp(0), error=error))
    world.respond_to_metadata(topic("orders", {0: 3}, epoch=3))
    assert world.only(ListOffsetsRequest)[0].node == NODES[3]
    assert world.only(ListOffsetsRequest)[1].queries[0].leader_epoch == 3
    world.log_is(listed(0, 4, epoch=3))
    assert world.found == {a: (4, 3, True)}
    assert world.errors == []


def test_the_committed_offset_of_an_unknown_topic_is_asked_for_when_its_id_is_known() -> None:
    """By its name the response could be of a topic that is another one by then."""
    world = PositionWorld(1)
    payments = PartitionInstance(tp(0, "payments"), 7)
    world.cluster.want(world.now, frozenset({"orders", "payments"}))
    orders = topic("orders", {0: 1}, topic_id=b"o" * 16)
    gone = topic("payments", {}, error=ErrorCode.unknown_topic_or_partition)
    world.respond_to_metadata(orders, gone)
    world.positions.find(world.now, [payments])
    world.advance(0.2)
    assert world.sends(OffsetFetchRequest) == []
    world.respond_to_metadata(orders, topic("payments", {0: 1}, topic_id=b"p" * 16))
    _, request = world.only(OffsetFetchRequest)
    assert request.topic_ids == {"payments": b"p" * 16}
    world.commits_are(FetchedOffset(partition=tp(0, "payments"), error=NONE, offset=3))
    assert world.found == {payments: (3, -1, False)}


def test_while_the_leader_is_unknown_it_waits_and_says_so() -> None:
    world = PositionWorld(1)
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: -1}, epoch=3))
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    fields = world.named("waiting for the position of a partition")[0].fields
    assert (fields["waiting_for"], fields["partition"]) == ("an offset by timestamp", "orders-0")
    for _ in range(5):
        world.advance(6)
        for _ in world.sends(MetadataRequest):
            world.respond_to_metadata(topic("orders", {0: -1}, epoch=3))
    world.advance(6)
    world.respond_to_metadata(topic("orders", {0: 1}, epoch=4))
    world.log_is(listed(0, 4, epoch=4))
    assert world.found == {a: (4, 4, True)}


def test_a_leader_that_cannot_be_reached_is_tried_again() -> None:
    world = PositionWorld(1)
    (a,) = world.find(0)
    world.commits_are(committed(0, -1))
    world.fail(world.only(ListOffsetsRequest)[0])
    assert world.sends(ListOffsetsRequest) == []
    world.advance(0.3)
    world.log_is(listed(0, 4))
    assert world.found == {a: (4, 2, True)}


def test_a_leader_that_does_not_respond_is_asked_every_three_seconds_at_most() -> None:
    world = PositionWorld(1)
    world.find(0)
    world.commits_are(committed(0, -1))
    times: list[float] = []
    start = world.now
    while world.now - start < 60:
        for send in world.sends(ListOffsetsRequest):
            times.append(world.now)
            world.fail(send)
        world.advance(0.05)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] < 0.5
    assert 1.0 < max(gaps) < 3.1


def test_a_leader_that_rejects_is_reported_once() -> None:
    world = PositionWorld(1)
    world.find(0)
    world.commits_are(committed(0, -1))
    for _ in range(3):
        world.log_is(ListedOffset(partition=tp(0), error=ErrorCode.unsupported_for_message_format))
        world.advance(10)
    (error,) = world.errors
    assert isinstance(error, PartitionsError)
    assert "unsupported_for_message_format" in str(error)


def test_a_response_for_an_instance_that_has_ended_is_ignored() -> None:
    world = PositionWorld()
    a, b = world.find(0, 1)
    a.transition(InstanceTransition.REVOKE)
    b.transition(InstanceTransition.LOSE)
    world.commits_are(committed(0, 5), committed(1, -1))
    world.advance(60)
    assert world.found == {}
    assert world.sends(OffsetFetchRequest) == []
    assert world.sends(ListOffsetsRequest) == []


def test_a_response_after_a_seek_is_ignored() -> None:
    world = PositionWorld()
    (a,) = world.find(0)
    world.place(a, 1234)
    world.commits_are(committed(0, 5))
    world.advance(60)
    assert world.found == {}


def test_a_position_out_of_range_is_reset_and_said_once() -> None:
    world = PositionWorld()
    instance = world.active(0)
    world.positions.reset(world.now, instance, None)
    world.log_is(listed(0, 77))
    assert world.found == {instance: (77, 2, True)}
    (line,) = world.named("position is reset")
    assert (line.level, line.fields["policy"]) == ("warning", "earliest")
    assert line.fields["offsets"] == {"orders-0": 77}


def test_a_position_out_of_range_with_the_policy_error_is_reported_and_kept() -> None:
    world = PositionWorld(auto_offset_reset="error")
    instance = world.active(0)
    world.positions.reset(world.now, instance, None)
    assert [type(error) for error in world.errors] == [OffsetOutOfRangeError]
    assert world.sends(ListOffsetsRequest) == []


@pytest.mark.parametrize("timestamp", [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP])
def test_a_seek_to_an_end_of_the_log_asks_for_it(timestamp: int) -> None:
    world = PositionWorld(auto_offset_reset="error")
    instance = world.active(0)
    world.positions.reset(world.now, instance, timestamp)
    assert asked(world.log_is(listed(0, 8))) == {0: timestamp}
    assert world.found == {instance: (8, 2, True)}


def test_a_later_seek_supersedes_one_under_way() -> None:
    world = PositionWorld()
    instance = world.active(0)
    world.positions.reset(world.now, instance, EARLIEST_TIMESTAMP)
    world.positions.reset(world.now, instance, LATEST_TIMESTAMP)
    first, second = world.sends(ListOffsetsRequest)
    world.reply(second, ListOffsetsResponse(offsets=(listed(0, 900),)))
    world.reply(first, ListOffsetsResponse(offsets=(listed(0, 0),)))
    assert world.found == {instance: (900, 2, True)}


def test_a_seek_whose_partition_is_being_revoked_waits_for_the_withdrawal() -> None:
    world = PositionWorld()
    instance = world.active(0)
    world.positions.reset(world.now, instance, EARLIEST_TIMESTAMP)
    instance.transition(InstanceTransition.REVOKE)
    world.log_is(listed(0, 0))
    world.advance(5)
    assert world.found == {}
    assert world.sends(ListOffsetsRequest) == []
    instance.transition(InstanceTransition.WITHDRAW)
    world.advance(2)
    world.log_is(listed(0, 3))
    assert world.found == {instance: (3, 2, True)}


def test_a_thousand_partitions_take_one_request_per_broker() -> None:
    world = PositionWorld(1000)
    world.find(*range(1000))
    world.commits_are(*(committed(n, -1) for n in range(1000)))
    sends = world.sends(ListOffsetsRequest)
    assert len(sends) == 3
    for send in sends:
        assert isinstance(send.message, ListOffsetsRequest)
        offsets = tuple(listed(n, n) for n in asked(send.message))
        world.reply(send, ListOffsetsResponse(offsets=offsets))
    assert len(world.found) == 1000


def test_a_position_outside_the_log_of_an_added_partition_is_reset_by_the_policy() -> None:
    world = PositionWorld(auto_offset_reset="latest")
    world.added.add(tp(0))
    instance = world.active(0)
    world.positions.reset(world.now, instance, None)
    assert world.log_is().queries[0].timestamp == LATEST_TIMESTAMP


def test_an_added_partition_raises_an_error_if_the_policy_says_so() -> None:
    world = PositionWorld(auto_offset_reset="error")
    world.added.add(tp(0))
    world.find(0)
    world.commits_are(committed(0, -1))
    (error,) = world.errors
    assert isinstance(error, NoOffsetError)
