"""The consumer of a share group on a broker with the rules of Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.membership.share.share_application import Application, accept_after
from unit.core.membership.share.share_broker import LATENCY, Member, ShareBroker, World

from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.messages import Request


def started(
    broker: ShareBroker | None = None, *, concurrency: int = 8, most: int = 16
) -> tuple[World, Member, Application]:
    world = World(broker or ShareBroker())
    member = Member(world, concurrency=concurrency, most=most)
    application = Application(world, member)
    member.start()
    return world, member, application


def accepted(world: World, partition: int = 0) -> list[int]:
    ended = world.broker.partitions[partition].ended
    return sorted(o for o, kind in ended.items() if kind is AcknowledgeType.ACCEPT)


def fetches(world: World) -> list[ShareFetchRequest]:
    return [r for r in world.broker.requests if isinstance(r, ShareFetchRequest)]


def test_each_record_is_delivered_and_accepted_once() -> None:
    world, _, application = started(ShareBroker(partitions=3))
    world.run(5.0)
    assert sorted(application.started) == [(p, o) for p in range(3) for o in range(20)]
    for partition in range(3):
        assert accepted(world, partition) == list(range(20))


def test_the_first_records_come_a_second_after_joining() -> None:
    world, _, application = started()
    world.run(0.4)
    assert application.started == []
    world.run(0.6)
    assert len(application.started) >= 8


def test_no_more_records_are_acquired_than_slots_are_free() -> None:
    world, member, application = started(ShareBroker(records=100), concurrency=5, most=50)
    application.plan = accept_after(0.05)
    for _ in range(400):
        world.run(world.now + 0.01)
        assert len(member.core.held) <= 10
        assert len(application.running) <= 5
    assert accepted(world) == list(range(100))


def test_the_lock_of_a_slow_handler_is_renewed_until_it_ends() -> None:
    world, _, application = started(ShareBroker(records=4, lock=10.0))
    application.plan = accept_after(95.0)
    world.run(120.0)
    assert accepted(world) == [0, 1, 2, 3]
    assert application.started == [(0, n) for n in range(4)]
    renewals = [r for r in world.broker.requests if isinstance(r, ShareAcknowledgeRequest)]
    assert all(len(r.partitions[0].acknowledgements) == 1 for r in renewals), "merged to one range"


@pytest.mark.parametrize("seconds", [0.0, 0.004, 0.02, 0.05, 1.0])
def test_an_acknowledgement_waits_no_longer_than_its_record_was_held(seconds: float) -> None:
    world, _, application = started(ShareBroker(records=3), concurrency=128)
    application.plan = accept_after(seconds)
    while len(application.ended) < 3:
        world.run(world.now + 0.001)
    ended = world.now
    while len(accepted(world)) < 3:
        world.run(world.now + 0.001)
    delay = world.now - ended
    assert delay <= min(seconds + 0.005, 0.1) + 2 * LATENCY + 0.001


def test_a_fetch_acquires_as_many_records_as_it_acknowledges() -> None:
    world, member, _ = started(ShareBroker(records=800), concurrency=8, most=8)
    while len(accepted(world)) < 799:
        world.run(world.now + 0.001)
        assert member.core.held.unfinished <= 8
    assert not [r for r in world.broker.requests if isinstance(r, ShareAcknowledgeRequest)]
    assert len(fetches(world)) <= 102


def test_acknowledgements_of_handlers_that_end_one_by_one_share_requests() -> None:
    world, _, application = started(ShareBroker(records=400), concurrency=1000, most=2000)

    def plan(record: Record) -> list[tuple[str, float]]:
        return [("accept", 0.5 + record.offset / 1000)]

    application.plan = plan
    world.run(1.0)
    before = len(fetches(world))
    world.run(1.4)
    assert len(application.ended) > 300
    assert 20 < len(fetches(world)) - before <= 81


def test_a_waiting_record_uses_no_slot_and_keeps_its_lock() -> None:
    world, _, application = started(ShareBroker(records=6, lock=10.0), concurrency=2, most=6)
    slow = {0, 1}

    def plan(record: Record) -> list[tuple[str, float]]:
        if record.offset in slow:
            return [("wait", 0.0), ("", 40.0), ("accept", 0.0)]
        return [("accept", 0.0)]

    application.plan = plan
    world.run(5.0)
    assert accepted(world) == [2, 3, 4, 5]
    world.run(60.0)
    assert accepted(world) == [0, 1, 2, 3, 4, 5]
    assert world.broker.partitions[0].deliveries == dict.fromkeys(range(6), 1)


def test_a_record_is_released_after_its_delay_and_delivered_again() -> None:
    world, _, application = started(ShareBroker(records=2, lock=10.0))
    tried: list[int] = []

    def plan(record: Record) -> list[tuple[str, float]]:
        tried.append(record.offset)
        if record.offset == 0 and tried.count(0) == 1:
            return [("later", 0.0), ("", 30.0)]
        return [("accept", 0.0)]

    application.plan = plan
    world.run(25.0)
    assert accepted(world) == [1]
    world.run(35.0)
    assert accepted(world) == [0, 1]
    assert world.broker.partitions[0].deliveries[0] == 2


def test_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    broker = ShareBroker(records=10)
    broker.partitions[0].gaps = frozenset((0, 3, 4, 9))
    world, _, application = started(broker)
    world.run(5.0)
    assert [offset for _, offset in application.started] == [1, 2, 5, 6, 7, 8]
    assert {o for o, k in broker.partitions[0].ended.items() if k is AcknowledgeType.GAP} == {
        0,
        3,
        4,
        9,
    }


def test_only_acquired_offsets_of_a_batch_are_delivered() -> None:
    broker = ShareBroker(records=20)
    world = World(broker)
    members = [Member(world, f"m{n}", concurrency=4, most=8) for n in range(2)]
    applications = [Application(world, member) for member in members]
    for member in members:
        member.start()
    world.run(10.0)
    offsets = [offset for application in applications for _, offset in application.started]
    assert sorted(offsets) == list(range(20))


def test_one_lost_lock_costs_no_other_record_its_acknowledgement() -> None:
    world, member, application = started(ShareBroker(records=8))
    application.plan = accept_after(2.0)
    world.run(1.5)
    # A tool has reset the group's offsets: the broker has forgotten one lock.
    del world.broker.partitions[0].locks[5]
    world.broker.partitions[0].ended[5] = AcknowledgeType.REJECT
    world.run(10.0)
    assert accepted(world) == [0, 1, 2, 3, 4, 6, 7]
    assert len(member.core.held) == 0
    assert "locks of acquired records are lost" in member.events


def test_a_member_that_was_removed_joins_again_and_keeps_its_records() -> None:
    world, member, application = started(ShareBroker(records=8, lock=30.0))
    application.plan = accept_after(8.0)
    world.run(2.0)
    world.broker.members.clear()
    world.run(40.0)
    assert accepted(world) == list(range(8))
    assert application.cancelled == []
    assert application.started == [(0, n) for n in range(8)]
    assert "removed from the share group; joining again" in member.events


def test_a_member_that_each_join_fences_joins_after_pauses() -> None:
    broker = ShareBroker(records=1)
    broker.errors[ShareGroupHeartbeatRequest] = [ErrorCode.fenced_member_epoch] * 1000
    world, _, _ = started(broker)
    world.run(20.0)
    joins = sum(isinstance(each, ShareGroupHeartbeatRequest) for each in broker.requests)
    assert 10 <= joins <= 25
    broker.errors.clear()
    world.run(25.0)
    assert accepted(world) == [0]


@pytest.mark.parametrize(("answers", "warns"), [(4, False), (1000, True)])
def test_a_coordinator_that_loads_its_groups_is_a_warning_after_seconds(
    answers: int, warns: bool
) -> None:
    """The first member of a cluster that just started meets such a coordinator."""
    broker = ShareBroker(records=1)
    loads = ErrorCode.coordinator_load_in_progress
    broker.errors[ShareGroupHeartbeatRequest] = [loads] * answers
    world, member, _ = started(broker)
    world.run(8.0)
    assert (accepted(world) == [0]) is not warns
    assert ("waiting for the share group" in member.events) is warns


def test_a_full_group_is_a_warning_at_once() -> None:
    broker = ShareBroker(records=1)
    broker.errors[ShareGroupHeartbeatRequest] = [ErrorCode.group_max_size_reached]
    world, member, _ = started(broker)
    world.run(0.1)
    assert "waiting for the share group" in member.events


def test_a_closed_connection_loses_what_it_had_acquired() -> None:
    world, member, application = started(ShareBroker(records=4))
    application.plan = accept_after(3.0)
    world.run(1.0)
    assert len(application.running) == 4
    member.fault_free = False
    failed: list[Request] = []

    def once(request: Request) -> str | None:
        if failed:
            return None
        failed.append(request)
        return "lost"

    member.fate = once
    world.run(20.0)
    assert sorted(application.cancelled) == [(0, n) for n in range(4)]
    assert accepted(world) == [0, 1, 2, 3]
    assert world.broker.partitions[0].deliveries == dict.fromkeys(range(4), 2)


def test_an_accept_without_a_response_is_not_sent_again() -> None:
    world, member, application = started(ShareBroker(records=2))
    member.fault_free = False

    def fate(request: Request) -> str | None:
        acknowledges = any(
            batch.type is AcknowledgeType.ACCEPT
            for entry in getattr(request, "partitions", ())
            for batch in entry.acknowledgements
        )
        if acknowledges and member.fault_free is False:
            member.fault_free = True
            return "unanswered"
        return None

    member.fate = fate
    world.run(20.0)
    assert accepted(world) == [0, 1]
    assert application.started == [(0, 0), (0, 1)]


def test_an_unknown_session_is_opened_again_with_its_acknowledgements() -> None:
    broker = ShareBroker(records=4)
    world, member, application = started(broker)
    application.plan = accept_after(2.0)
    world.run(1.0)
    # The broker has evicted the session; the connection is open.
    session = broker.sessions.pop("m1")
    world.run(10.0)
    assert session.epoch > 1
    assert accepted(world) == [0, 1, 2, 3]
    assert application.started == [(0, n) for n in range(4)]
    assert application.cancelled == []
    assert member.events.count("a request of the share session is rejected") == 1


def test_after_an_unknown_error_the_session_is_opened_with_epoch_zero() -> None:
    broker = ShareBroker(records=4)
    world, _, _ = started(broker)
    world.run(1.0)
    broker.errors[ShareFetchRequest] = [ErrorCode.unknown_server_error]
    world.run(5.0)
    epochs = [request.session_epoch for request in fetches(world)]
    assert epochs.count(0) == 2
    broker.partitions[0].end = 6
    world.run(10.0)
    assert accepted(world) == list(range(6))


def test_closing_releases_what_has_not_started_and_waits_for_what_runs() -> None:
    world, member, application = started(ShareBroker(records=8), concurrency=4)
    application.plan = accept_after(3.0)
    world.run(1.0)
    assert len(application.running) == 4
    call = member.call(member.core.close, Deadline.after(world.now, 20.0))
    world.run(2.0)
    assert call not in member.results
    world.run(10.0)
    assert call in member.results
    assert accepted(world) == [0, 1, 2, 3]
    assert world.broker.partitions[0].locks == {}
    assert world.broker.sessions == {}
    assert world.broker.members == {}
    assert world.broker.requests[-1] == ShareGroupHeartbeatRequest(
        group_id="g", member_id="m1", member_epoch=-1
    )


def test_closing_ends_at_its_deadline_when_the_broker_is_silent() -> None:
    world, member, application = started(ShareBroker(records=8), concurrency=4)
    application.plan = accept_after(100.0)
    world.run(1.0)
    member.slow = lambda _request: 1000.0
    call = member.call(member.core.close, Deadline.after(world.now, 10.0))
    world.run(11.1)
    assert call in member.results
    assert world.broker.partitions[0].locks == {}


def test_renewals_end_when_the_group_forbids_them() -> None:
    broker = ShareBroker(records=3, lock=10.0)
    world, member, application = started(broker)
    application.plan = accept_after(8.0)
    broker.renews = False
    world.run(30.0)
    assert accepted(world) == [0, 1, 2]
    assert application.started == [(0, n) for n in range(3)]
    assert member.events.count("the broker does not renew locks of acquired records") == 1


def test_refused_renewals_of_lost_locks_do_not_end_those_of_others() -> None:
    broker = ShareBroker(records=3, lock=10.0)
    world, member, application = started(broker)
    application.plan = accept_after(25.0)
    world.run(2.0)
    # A tool has reset the group's offsets, and others have handled the records.
    partition = broker.partitions[0]
    partition.locks.clear()
    partition.ended.update(dict.fromkeys(range(3), AcknowledgeType.ACCEPT))
    member.fault_free = False
    world.run(15.0)
    assert len(application.cancelled) == 3
    partition.end = 6
    world.run(60.0)
    assert accepted(world) == list(range(6))
    assert application.started == [(0, n) for n in range(6)]
    assert "the broker does not renew locks of acquired records" not in member.events
