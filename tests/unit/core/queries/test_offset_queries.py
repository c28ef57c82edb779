from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_environment import NODES, ScriptedRequests, metadata, topic, tp

from asyncrevoke.client.core.io.effects import FailureKind, Node
from asyncrevoke.client.core.queries.offset_queries import OffsetQueries, TopicDescription
from asyncrevoke.client.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConsumerClosedError,
    GroupAuthorizationError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from asyncrevoke.client.model import OffsetAndMetadata, OffsetAndTimestamp
from asyncrevoke.client.protocol.messages import (
    LATEST_TIMESTAMP,
    ErrorCode,
    FetchedOffset,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicMetadata,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

NONE = ErrorCode.none


class LookupWorld(ScriptedRequests):
    """Broker 2 coordinates; "orders" has partitions 0 to 2, led by brokers 1 to 3."""

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(**options)
        self.know(topic("orders", {0: 1, 1: 2, 2: 3}, epoch=4))
        self.coordinator.node = NODES[2]
        self.lookups = OffsetQueries(self.outbox, self.config, self.cluster, self.coordinator)

    def result(self, call_id: int = 1) -> object:
        self.sync()
        complete = self.completed[call_id]
        assert complete.error is None, complete.error
        return complete.result

    def error(self, call_id: int = 1) -> Exception:
        self.sync()
        error = self.completed[call_id].error
        assert error is not None
        return error

    @property
    def is_done(self) -> bool:
        self.sync()
        return bool(self.completed)


def fetched(number: int, offset: int, error: ErrorCode = NONE) -> FetchedOffset:
    return FetchedOffset(
        partition=tp(number), error=error, offset=offset, leader_epoch=4, metadata="m"
    )


def listed(number: int, offset: int, error: ErrorCode = NONE, name: str = "orders") -> ListedOffset:
    return ListedOffset(
        partition=tp(number, name), error=error, offset=offset, timestamp=99, leader_epoch=4
    )


def test_committed_offsets_come_from_the_coordinator() -> None:
    world = LookupWorld()
    world.lookups.committed(world.now, 1, [tp(0), tp(1)])
    send, request = world.only(OffsetFetchRequest)
    assert (send.node, request.require_stable) == (NODES[2], True)
    world.reply(send, OffsetFetchResponse(error=NONE, offsets=(fetched(0, 7), fetched(1, -1))))
    assert world.result() == {tp(0): OffsetAndMetadata(7, "m", 4), tp(1): None}
    assert not [key for key in world.timers if key.startswith("lookup")]


def test_committed_without_a_group_names_the_fix() -> None:
    world = LookupWorld(group_id=None)
    world.lookups.committed(world.now, 1, [tp(0)])
    assert isinstance(world.error(), ConfigError)
    assert "group_id" in str(world.error())


def test_committed_is_asked_again_while_the_coordinator_loads_or_moves() -> None:
    world = LookupWorld()
    world.lookups.committed(world.now, 1, [tp(0)])
    for error in (ErrorCode.coordinator_load_in_progress, ErrorCode.unstable_offset_commit):
        world.reply(world.only(OffsetFetchRequest)[0], OffsetFetchResponse(error=error))
        assert world.sends(OffsetFetchRequest) == []
        world.advance(1)
    world.reply(
        world.only(OffsetFetchRequest)[0], OffsetFetchResponse(error=ErrorCode.not_coordinator)
    )
    send, _ = world.only(FindCoordinatorRequest)
    world.reply(send, FindCoordinatorResponse(error=NONE, node_id=3, host="b3", port=9092))
    world.advance(1)
    send, _ = world.only(OffsetFetchRequest)
    assert send.node == NODES[3]
    world.reply(send, OffsetFetchResponse(error=NONE, offsets=(fetched(0, 7),)))
    assert world.result() == {tp(0): OffsetAndMetadata(7, "m", 4)}


def test_a_partition_that_the_coordinator_leaves_out_is_asked_for_again() -> None:
    world = LookupWorld()
    world.lookups.committed(world.now, 1, [tp(0)])
    world.reply(world.only(OffsetFetchRequest)[0], OffsetFetchResponse(error=NONE))
    world.advance(1)
    world.only(OffsetFetchRequest)
    assert not world.is_done


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.group_authorization_failed, GroupAuthorizationError),
        (ErrorCode.topic_authorization_failed, TopicAuthorizationError),
        (ErrorCode.invalid_group_id, BrokerError),
    ],
)
def test_an_error_that_will_not_pass_ends_the_call(
    error: ErrorCode, expected: type[Exception]
) -> None:
    world = LookupWorld()
    world.lookups.committed(world.now, 1, [tp(0)])
    world.reply(
        world.only(OffsetFetchRequest)[0],
        OffsetFetchResponse(error=NONE, offsets=(fetched(0, -1, error),)),
    )
    assert type(world.error()) is expected


def test_the_time_limit_names_what_was_waited_for() -> None:
    world = LookupWorld(request_timeout=5)
    world.lookups.committed(world.now, 1, [tp(0)])
    start = world.now
    while not world.is_done:
        for send in world.sends(OffsetFetchRequest):
            world.reply(send, OffsetFetchResponse(error=ErrorCode.coordinator_load_in_progress))
        world.advance(0.1)
    assert world.now - start == pytest.approx(5, abs=0.2)
    error = world.error()
    assert isinstance(error, RequestTimeoutError)
    assert isinstance(error, TimeoutError)
    assert "coordinator_load_in_progress" in str(error)


def test_a_late_response_after_the_time_limit_is_ignored() -> None:
    world = LookupWorld(request_timeout=5)
    world.lookups.committed(world.now, 1, [tp(0)])
    send, _ = world.only(OffsetFetchRequest)
    world.advance(6)
    world.reply(send, OffsetFetchResponse(error=NONE, offsets=(fetched(0, 7),)))
    assert isinstance(world.error(), RequestTimeoutError)


def test_offsets_by_timestamp_come_from_the_leaders() -> None:
    world = LookupWorld()
    world.lookups.offsets_for_times(world.now, 1, {tp(0): 5, tp(1): LATEST_TIMESTAMP})
    first, second = world.sends(ListOffsetsRequest)
    assert (first.node, second.node) == (NODES[1], NODES[2])
    world.reply(second, ListOffsetsResponse(offsets=(listed(1, -1),)))
    assert not world.is_done
    world.reply(first, ListOffsetsResponse(offsets=(listed(0, 70),)))
    assert world.result() == {tp(0): OffsetAndTimestamp(70, 99, 4), tp(1): None}


def test_only_what_is_missing_is_asked_again_and_at_the_new_leader() -> None:
    world = LookupWorld()
    world.lookups.offsets_for_times(world.now, 1, {tp(0): 5, tp(1): 5})
    first, second = world.sends(ListOffsetsRequest)
    world.advance(1)
    world.reply(first, ListOffsetsResponse(offsets=(listed(0, 70),)))
    moved = listed(1, -1, ErrorCode.not_leader_or_follower)
    world.reply(second, ListOffsetsResponse(offsets=(moved,)))
    world.respond_to_metadata(topic("orders", {0: 1, 1: 3, 2: 3}, epoch=5))
    world.advance(1)
    send, request = world.only(ListOffsetsRequest)
    assert (send.node, [query.partition for query in request.queries]) == (NODES[3], [tp(1)])
    world.reply(send, ListOffsetsResponse(offsets=(listed(1, 8),)))
    assert world.result() == {
        tp(0): OffsetAndTimestamp(70, 99, 4),
        tp(1): OffsetAndTimestamp(8, 99, 4),
    }


def test_a_leader_that_cannot_be_reached_is_asked_again() -> None:
    world = LookupWorld()
    world.lookups.offsets_for_times(world.now, 1, {tp(0): 5})
    world.fail(world.only(ListOffsetsRequest)[0], FailureKind.TIMEOUT)
    assert not world.is_done
    world.advance(1)
    world.reply(world.only(ListOffsetsRequest)[0], ListOffsetsResponse(offsets=(listed(0, 1),)))
    assert world.result() == {tp(0): OffsetAndTimestamp(1, 99, 4)}


def test_leaders_of_other_topics_are_looked_up_first() -> None:
    world = LookupWorld()
    world.lookups.offsets_for_times(world.now, 1, {tp(0, "clicks"): 5})
    send, request = world.only(MetadataRequest)
    assert request.topics == ("clicks",)
    world.reply(send, metadata(topic("clicks", {0: 3})))
    send, _ = world.only(ListOffsetsRequest)
    assert send.node == NODES[3]
    world.reply(send, ListOffsetsResponse(offsets=(listed(0, 6, name="clicks"),)))
    assert world.result() == {tp(0, "clicks"): OffsetAndTimestamp(6, 99, 4)}
    assert world.cluster.partitions("clicks") is None, "the subscription's view is not touched"


def test_leaders_and_partitions_of_a_topic_that_is_not_read_any_more_are_looked_up() -> None:
    world = LookupWorld()
    world.cluster.want(world.now, frozenset())
    world.respond_to_metadata()
    world.lookups.partitions_for_topic(world.now, 1, "orders")
    now = metadata(topic("orders", {0: 3, 1: 2, 2: 3, 3: 1}, epoch=6))
    world.reply(world.only(MetadataRequest)[0], now)
    assert world.result() == frozenset({0, 1, 2, 3})
    world.lookups.offsets_for_times(world.now, 2, {tp(0): 5})
    world.reply(world.only(MetadataRequest)[0], now)
    send, request = world.only(ListOffsetsRequest)
    assert (send.node, request.queries[0].leader_epoch) == (NODES[3], 6)


def test_offsets_of_a_topic_that_does_not_exist_time_out_with_its_name() -> None:
    world = LookupWorld(request_timeout=5)
    world.lookups.offsets_for_times(world.now, 1, {tp(0, "nowhere"): 5})
    while not world.is_done:
        for send in world.sends(MetadataRequest):
            unknown = topic("nowhere", {}, error=ErrorCode.unknown_topic_or_partition)
            world.reply(send, metadata(unknown))
        world.advance(0.1)
    assert isinstance(world.error(), RequestTimeoutError)
    assert "nowhere" in str(world.error())


def test_a_query_for_nothing_returns_nothing() -> None:
    world = LookupWorld()
    world.lookups.offsets_for_times(world.now, 1, {})
    world.lookups.committed(world.now, 2, [])
    assert (world.result(1), world.result(2)) == ({}, {})


def test_partitions_of_a_known_topic_need_no_request() -> None:
    world = LookupWorld()
    world.lookups.partitions_for_topic(world.now, 1, "orders")
    assert world.result() == frozenset({0, 1, 2})


def test_partitions_of_another_topic_are_looked_up() -> None:
    world = LookupWorld()
    world.lookups.partitions_for_topic(world.now, 1, "clicks")
    world.reply(world.only(MetadataRequest)[0], metadata(topic("clicks", {1: 1, 0: 1})))
    assert world.result() == frozenset({0, 1})


def test_a_topic_that_two_brokers_deny_has_no_partitions() -> None:
    world = LookupWorld()
    world.lookups.partitions_for_topic(world.now, 1, "nowhere")
    for _ in range(2):
        assert not world.is_done
        unknown = topic("nowhere", {}, error=ErrorCode.unknown_topic_or_partition)
        world.reply(world.only(MetadataRequest)[0], metadata(unknown))
        world.advance(1)
    assert world.result() == frozenset()


def test_metadata_with_an_error_of_the_whole_response_is_asked_for_elsewhere() -> None:
    world = LookupWorld()
    world.lookups.partitions_for_topic(world.now, 1, "clicks")
    world.lookups.offsets_for_times(world.now, 2, {tp(0, "clicks"): 5})
    required = MetadataResponse(error=ErrorCode.rebootstrap_required, brokers=(), topics=())
    refusing: set[Node] = set()
    for send in world.sends(MetadataRequest):
        refusing.add(send.node)
        world.reply(send, required)
    assert not world.is_done
    world.advance(1)
    for send in world.sends(MetadataRequest):
        assert send.node not in refusing
        world.reply(send, metadata(topic("clicks", {0: 1})))
    assert world.result(1) == frozenset({0})
    assert len(world.sends(ListOffsetsRequest)) == 1


def test_rejected_credentials_end_a_call() -> None:
    world = LookupWorld()
    world.lookups.partitions_for_topic(world.now, 1, "clicks")
    world.fail(world.only(MetadataRequest)[0], FailureKind.AUTHENTICATION, "wrong password")
    assert isinstance(world.error(), AuthenticationError)


def test_when_the_consumer_ends_all_calls_end() -> None:
    world = LookupWorld()
    world.lookups.committed(world.now, 1, [tp(0)])
    world.lookups.offsets_for_times(world.now, 2, {tp(0): 5})
    world.lookups.partitions_for_topic(world.now, 3, "clicks")
    world.lookups.fail_all(ConsumerClosedError("closed"))
    for call_id in (1, 2, 3):
        assert isinstance(world.error(call_id), ConsumerClosedError)
    world.advance(100)
    assert len(world.completed) == 3


def test_topics_are_described_as_the_brokers_have_them_now() -> None:
    world = LookupWorld()
    world.lookups.describe_topics(world.now, 1, ["orders", "clicks"])
    send, request = world.only(MetadataRequest)
    assert request.topics == ("clicks", "orders")
    clicks = TopicMetadata(error=NONE, name="clicks", topic_id=b"c" * 16, is_internal=True)
    world.reply(send, metadata(topic("orders", {0: 1, 1: 2}), clicks))
    assert world.result() == {
        "orders": TopicDescription(None, frozenset({0, 1}), is_internal=False),
        "clicks": TopicDescription(b"c" * 16, frozenset(), is_internal=True),
    }


def test_all_topics_are_described_without_those_that_are_being_deleted() -> None:
    world = LookupWorld()
    world.lookups.describe_topics(world.now, 1, None)
    send, request = world.only(MetadataRequest)
    assert request.topics is None
    deleted = topic("deleted", {}, error=ErrorCode.unknown_topic_or_partition)
    world.reply(send, metadata(topic("orders", {0: 1}), deleted))
    assert world.result() == {"orders": TopicDescription(None, frozenset({0}), is_internal=False)}


def test_a_described_topic_is_missing_if_two_brokers_deny_it() -> None:
    world = LookupWorld()
    world.lookups.describe_topics(world.now, 1, ["orders", "nowhere"])
    for _ in range(2):
        assert not world.is_done
        unknown = topic("nowhere", {}, error=ErrorCode.unknown_topic_or_partition)
        world.reply(world.only(MetadataRequest)[0], metadata(topic("orders", {0: 1}), unknown))
        world.advance(1)
    assert world.result() == {"orders": TopicDescription(None, frozenset({0}), is_internal=False)}


def test_no_topics_need_no_request_and_a_rejected_one_is_an_error() -> None:
    world = LookupWorld()
    world.lookups.describe_topics(world.now, 1, [])
    assert world.result() == {}
    world.lookups.describe_topics(world.now, 2, ["secret"])
    rejected = topic("secret", {}, error=ErrorCode.topic_authorization_failed)
    world.reply(world.only(MetadataRequest)[0], metadata(rejected))
    assert "grant DESCRIBE" in str(world.error(2))
    assert isinstance(world.error(2), TopicAuthorizationError)
