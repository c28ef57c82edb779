"""Responses that can be decoded and cannot be true: each counts as a request that has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import NODE_IDS, tp
from unit.core.scripted_group import MEMBER, ScriptedGroup

from asyncrevoke.client.config.topics import MAX_ASSIGNED
from asyncrevoke.client.core.io.effects import Channel, Replied, ResetConnection
from asyncrevoke.client.core.io.response_checks import find_contradiction
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import ConsumerClosedError, FatalError
from asyncrevoke.client.protocol.messages import (
    AbortedTransaction,
    BrokerMetadata,
    CommitEntry,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    EpochEnd,
    EpochQuery,
    ErrorCode,
    FetchedOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetQuery,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
    Request,
    Response,
    TopicIdPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import TopicPartition

EVENT = "invalid response from a broker; retrying on a new connection"


def joined(**fields: object) -> JoinGroupResponse:
    usual = {
        "generation": 1,
        "protocol_name": "cooperative-sticky",
        "leader": "m",
        "member_id": MEMBER,
    }
    return JoinGroupResponse(error=ErrorCode.none, **(usual | fields))  # type: ignore[arg-type]


def test_an_empty_member_id_is_no_membership_and_joining_continues() -> None:
    group = ScriptedGroup()
    group.start()
    send, _ = group.only(JoinGroupRequest)
    group.reply(send, joined(member_id=""))
    (line,) = group.named(EVENT)
    assert line.fields["problem"] == "the member id is empty"
    assert group.phase() is ClassicState.AWAIT_ID
    group.give_id()
    group.rejoin(0)
    assert group.phase() is ClassicState.STABLE
    group.rebalance()  # raised KeyError
    group.rejoin(0)
    assert group.assigned == {tp(0)}


def test_a_member_that_has_an_id_is_not_asked_to_get_one() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.rebalance()
    send, _ = group.only(JoinGroupRequest)
    group.reply(send, JoinGroupResponse(error=ErrorCode.member_id_required, member_id="m-9"))
    assert group.named(EVENT)
    assert group.phase() is ClassicState.AWAIT_JOIN  # raised AssertionError
    group.rejoin(0)
    assert group.phase() is ClassicState.STABLE


def test_the_connection_of_an_impossible_response_is_dropped() -> None:
    group = ScriptedGroup()
    group.start()
    send, _ = group.only(JoinGroupRequest)
    effects = group.core.handle(group.now, Replied(send.request_id, joined(generation=-5)))
    assert ResetConnection(send.node, Channel.JOIN) in effects


JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout=1.0,
    rebalance_timeout=1.0,
    member_id="",
    group_instance_id=None,
    protocols=(),
)
BEAT = ConsumerGroupHeartbeatRequest(
    group_id="g", member_id="m", member_epoch=0, group_instance_id=None
)
PULSE = HeartbeatRequest(group_id="g", generation=1, member_id="m", group_instance_id=None)


def broker(**fields: object) -> MetadataResponse:
    usual = {"node_id": 1, "host": "b1", "port": 9092}
    only = BrokerMetadata(**(usual | fields))  # type: ignore[arg-type]
    return MetadataResponse(brokers=(only,), topics=())


def found(**fields: object) -> FindCoordinatorResponse:
    usual = {"error": ErrorCode.none, "node_id": 1, "host": "b1", "port": 9092}
    return FindCoordinatorResponse(**(usual | fields))  # type: ignore[arg-type]


def assigned(*assignment: TopicIdPartitions) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error=ErrorCode.none, member_epoch=1, assignment=assignment
    )


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (MetadataRequest(topics=None), broker(node_id=-1)),
        (MetadataRequest(topics=None), broker(host="")),
        (MetadataRequest(topics=None), broker(port=0)),
        (MetadataRequest(topics=None), broker(port=65536)),
        (FindCoordinatorRequest(group_id="g"), found(node_id=-1)),
        (FindCoordinatorRequest(group_id="g"), found(host="")),
        (FindCoordinatorRequest(group_id="g"), found(port=-1)),
        (JOIN, joined(generation=-1)),
        (JOIN, joined(member_id="")),
        (JOIN, JoinGroupResponse(error=ErrorCode.member_id_required)),
        (BEAT, ConsumerGroupHeartbeatResponse(error=ErrorCode.none, member_epoch=0)),
        (BEAT, ConsumerGroupHeartbeatResponse(error=ErrorCode.none, member_epoch=-3)),
        (BEAT, assigned((bytes(16), (0, -1)))),
        (BEAT, assigned((bytes(16), (0,) * (MAX_ASSIGNED + 1)))),
        (BEAT, assigned(*((bytes(16), ()) for _ in range(MAX_ASSIGNED + 1)))),
    ],
)
def test_what_cannot_be_true_is_named(request_: Request, response: Response) -> None:
    assert find_contradiction(request_, response)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (MetadataRequest(topics=None), broker()),
        (FindCoordinatorRequest(group_id="g"), found()),
        (
            FindCoordinatorRequest(group_id="g"),
            FindCoordinatorResponse(error=ErrorCode.coordinator_not_available),
        ),
        (JOIN, joined()),
        (JOIN, JoinGroupResponse(error=ErrorCode.unknown_member_id)),
        (BEAT, ConsumerGroupHeartbeatResponse(error=ErrorCode.fenced_member_epoch)),
        (BEAT, assigned()),
        (BEAT, assigned((bytes(16), ()), (bytes(16), (0, 2**31 - 1)))),
        (PULSE, HeartbeatResponse(error=ErrorCode.rebalance_in_progress)),
    ],
)
def test_what_can_be_true_is_taken(request_: Request, response: Response) -> None:
    assert find_contradiction(request_, response) is None


def test_a_cluster_of_more_brokers_than_any_has_is_named_by_their_count() -> None:
    def respond(count: int) -> MetadataResponse:
        brokers = (
            BrokerMetadata(node_id=number, host="kafka", port=9092, rack=None)
            for number in range(count)
        )
        return MetadataResponse(brokers=tuple(brokers), topics=())

    request = MetadataRequest(topics=())
    assert find_contradiction(request, respond(10_000)) is None
    assert find_contradiction(request, respond(10_001)) == "10001 brokers, more than 10000"


def test_more_partitions_than_were_requested_are_named_by_their_count() -> None:
    many = [tp(number) for number in range(1_002)]
    ok = ErrorCode.none
    entry = CommitEntry(partition=tp(0), offset=1)
    query = OffsetQuery(partition=tp(0), timestamp=-1)
    epoch = EpochQuery(partition=tp(0), epoch=1)
    committing = OffsetCommitRequest(
        group_id="g", generation=1, member_id="m", group_instance_id=None, entries=(entry,)
    )
    pairs: list[tuple[Request, Callable[[list[TopicPartition]], Response]]] = [
        (committing, lambda some: OffsetCommitResponse(errors=tuple((each, ok) for each in some))),
        (
            OffsetFetchRequest(group_id="g", partitions=(tp(0),)),
            lambda some: OffsetFetchResponse(
                error=ok, offsets=tuple(FetchedOffset(partition=each, error=ok) for each in some)
            ),
        ),
        (
            ListOffsetsRequest(queries=(query,)),
            lambda some: ListOffsetsResponse(
                offsets=tuple(ListedOffset(partition=each, error=ok) for each in some)
            ),
        ),
        (
            OffsetsForLeaderEpochRequest(queries=(epoch,)),
            lambda some: OffsetsForLeaderEpochResponse(
                ends=tuple(EpochEnd(partition=each, error=ok) for each in some)
            ),
        ),
    ]
    for request, respond in pairs:
        assert find_contradiction(request, respond(many)) == "1002 partitions, of 1 requested ones"
        assert find_contradiction(request, respond(many[:-1])) is None


def test_more_aborted_transactions_than_can_be_are_named_by_their_count() -> None:
    def respond(aborted: int, records: bytes) -> FetchResponse:
        one = AbortedTransaction(producer_id=1, first_offset=1)
        each = FetchedPartition(
            partition=tp(0), error=ErrorCode.none, aborted=(one,) * aborted, records=records
        )
        return FetchResponse(error=ErrorCode.none, partitions=(each, each))

    request = FetchRequest(partitions=(), max_wait=0.5, min_bytes=1, max_bytes=1)
    assert find_contradiction(request, respond(50_000, b"")) is None
    assert find_contradiction(request, respond(50_001, bytes(61))) is None
    wrong = find_contradiction(request, respond(50_001, bytes(30)))
    assert wrong == "100002 aborted transactions, and at most 0 batches"


def test_the_brokers_on_paper_say_nothing_impossible() -> None:
    group = ScriptedGroup()
    group.become_member(*NODE_IDS)
    group.receive(1)
    assert not group.named(EVENT)


def test_a_record_that_was_dropped_may_be_abandoned_too() -> None:
    group = ScriptedGroup(commit_mode="ack")
    group.become_member(1)
    group.produce(1, 3)
    first, _, last = group.step().records
    group.core.returned_records.drop_after(group.now, tp(1), first.offset)
    group.core.returned_records.abandon_all(group.now, [last])  # raised KeyError
    group.core.returned_records.abandon_all(group.now, [last])
    assert group.core.assignment.in_flight == 1


def test_closing_completes_a_seek_that_waits_for_its_position() -> None:
    group = ScriptedGroup(commit_mode="ack")
    group.become_member(1)
    group.silent.add(ListOffsetsRequest)
    call_id = group.core.seek_to(group.now, [tp(1)], -2)
    group.core.membership.fail(group.now, FatalError("the end"))
    group.core.subscription_state.assign(group.now, [tp(2)])
    call_id = group.core.seek_to(group.now, [tp(2)], -2)
    group.close()
    assert isinstance(group.completed[call_id].error, ConsumerClosedError)
