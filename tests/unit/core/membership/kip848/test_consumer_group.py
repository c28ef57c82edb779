"""A member of a consumer group (KIP-848) against a coordinator that is a test."""

from __future__ import annotations

import pytest
from unit.core.membership.scripted_consumer_group import Beat
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import orders

from asyncrevoke.client.core.io.effects import Channel, FailureKind, NotifyKind
from asyncrevoke.client.core.membership.kip848 import target_assignment
from asyncrevoke.client.core.membership.kip848.state_table import (
    MEMBER_TRANSITIONS,
    MemberState,
    MemberTransition,
)
from asyncrevoke.client.errors import (
    FatalError,
    FencedInstanceError,
    GroupAuthorizationError,
    InconsistentGroupError,
)
from asyncrevoke.client.model import BrokerPattern, TopicPartition
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)


def test_every_move_that_a_phase_lacks_is_a_bug() -> None:
    assert (MemberState.STABLE, MemberTransition.JOIN) not in MEMBER_TRANSITIONS
    assert (MemberState.FATAL, MemberTransition.JOIN) not in MEMBER_TRANSITIONS
    assert set(MEMBER_TRANSITIONS.values()) == set(MemberState)


def test_a_member_joins_with_everything_and_then_says_only_what_is_new() -> None:
    group = Group(rebalance_timeout=60.0, client_rack="r", server_assignor="range")
    group.start()
    joining = group.respond(tp(0), tp(1))
    assert (joining.member_id, joining.member_epoch) == ("client-made", 0)
    assert joining.topics == ("orders",)
    assert (joining.rebalance_timeout, joining.rack, joining.assignor) == (60.0, "r", "range")
    assert joining.owned == ()
    assert group.next_beat().channel is Channel.HEARTBEAT
    acknowledged = group.quiet()
    assert (acknowledged.member_epoch, acknowledged.topics) == (1, None)
    assert acknowledged.owned == group.ids(tp(0), tp(1))
    later = group.quiet()
    assert (later.topics, later.owned, later.rebalance_timeout) == (None, None, None)
    assert group.assigned == orders(0, 1)


def test_heartbeats_are_frequent_until_things_have_settled() -> None:
    group = Group()
    group.join(0)
    first = group.now
    for _ in range(10):
        group.quiet()
    assert group.now - first == pytest.approx(0.5 * 10, abs=0.6)
    group.advance(10)
    before = group.now
    for _ in range(5):
        group.quiet()
    # The group asks for one in 5 s; ours are as frequent as heartbeat_interval says.
    assert group.now - before == pytest.approx(1.0 * 5, abs=1.1)


def test_the_session_timeout_in_health_follows_from_the_heartbeat_interval_of_the_broker() -> None:
    group = Group()
    assert group.core.health(group.now).session_timeout == group.config.session_timeout == 45
    group.start()
    group.respond(tp(0), interval=1.0)
    assert group.core.health(group.now).session_timeout == 9


def test_what_drains_is_not_spoken_of_and_acknowledged_at_once() -> None:
    group = Group(commit_mode="ack")
    group.join(0, 1)
    (record,) = group.receive(1)
    group.respond(tp(0))
    assert group.step().to_be_revoked == orders(1)
    assert group.state() is MemberState.RECONCILING
    for _ in range(3):
        assert group.quiet().owned is None
        group.step()
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert group.assigned == orders(0)
    # At once, not at the next interval.
    assert len(group.sends(Beat)) == 1
    assert group.beating().owned == group.ids(tp(0))
    group.quiet(epoch=2)
    assert group.state() is MemberState.STABLE
    assert group.core.group_metadata().generation == 2


def test_commits_and_offset_fetches_carry_the_epoch() -> None:
    group = Group(commit_mode="ack", commit_interval=0.1)
    group.start()
    group.respond(tp(0), epoch=7)
    fetches = [s.message for s in group.sent if isinstance(s.message, OffsetFetchRequest)]
    assert [(f.member_id, f.member_epoch) for f in fetches] == [("client-made", 7)]
    group.quiet(epoch=7)
    (record,) = group.receive(0)
    group.complete(record)
    group.advance(0.2)
    commit = group.only(OffsetCommitRequest)[1]
    assert (commit.member_id, commit.generation) == ("client-made", 7)


def test_a_stale_epoch_is_asked_for_at_once_and_the_commit_sent_again() -> None:
    group = Group(commit_mode="ack", commit_interval=0.1)
    group.join(0)
    (record,) = group.receive(0)
    group.complete(record)
    group.advance(0.11)
    beats = group.count(Beat)
    group.respond_to_commit(ErrorCode.stale_member_epoch)
    assert group.count(Beat) == beats + 1
    group.quiet(epoch=3)
    assert group.only(OffsetCommitRequest)[1].generation == 3
    group.respond_to_commit()
    assert group.assigned == orders(0)
    assert group.step().lost == frozenset()


def test_a_fenced_member_loses_everything_and_joins_again_with_its_id() -> None:
    group = Group()
    group.join(0, 1)
    group.respond(error=ErrorCode.unknown_member_id)
    assert group.step().lost == orders(0, 1)
    assert group.heard(NotifyKind.LOST) == [orders(0, 1)]
    joining = group.respond(tp(0), epoch=4)
    assert (joining.member_id, joining.member_epoch, joining.owned) == ("client-made", 0, ())
    assert group.assigned == orders(0)


def test_a_member_that_is_fenced_again_at_once_takes_a_breath() -> None:
    group = Group()
    group.join(0)
    group.respond(error=ErrorCode.unknown_member_id)
    group.respond(error=ErrorCode.unknown_member_id)
    begun = group.now
    group.next_beat()
    assert group.now - begun == pytest.approx(1.0)


def test_a_fenced_epoch_ends_the_membership_only_after_a_full_heartbeat() -> None:
    group = Group()
    group.join(0)
    group.respond(error=ErrorCode.fenced_member_epoch)
    assert group.assigned == orders(0)
    again = group.respond(tp(0), tp(1), epoch=5)
    assert again.owned == group.ids(tp(0))
    assert again.topics == ("orders",)
    assert group.assigned == orders(0, 1)
    group.respond(error=ErrorCode.fenced_member_epoch)  # an acknowledgement says what we own
    assert group.assigned == frozenset()


def test_after_a_lost_response_heartbeats_say_everything_for_a_while() -> None:
    group = Group(commit_mode="ack")
    group.join(0, 1)
    group.receive(1)
    group.respond(tp(0))
    group.fail(group.next_beat())
    full = group.respond(tp(0))
    assert full.owned == group.ids(tp(0), tp(1))  # what drains is still ours
    assert full.topics == ("orders",)
    assert group.state() is MemberState.RECONCILING
    assert group.respond(tp(0)).owned == group.ids(tp(0), tp(1))
    group.advance(6)
    group.respond(tp(0))
    assert group.quiet().owned is None


def test_what_was_on_its_way_at_the_release_is_no_acknowledgement_of_it() -> None:
    group = Group(commit_mode="ack")
    group.join(0, 1)
    (record,) = group.receive(1)
    group.respond(tp(0))
    group.step()
    group.fail(group.next_beat())
    assert group.beating().owned == group.ids(tp(0), tp(1))  # sent, and without a response yet
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert group.assigned == orders(0)
    group.respond(tp(0))
    # Else nobody would have the partition until the group's patience ends.
    assert group.state() is MemberState.ACKNOWLEDGING
    assert group.timers["heartbeat"] == group.now
    assert group.beating().owned == group.ids(tp(0))
    group.respond(tp(0), epoch=2)
    assert group.state() is MemberState.STABLE


def test_one_heartbeat_is_in_flight_also_when_a_commit_reports_that_we_are_out() -> None:
    group = Group(commit_mode="ack", commit_interval=0.1)
    group.join(0)
    (record,) = group.receive(0)
    beat = group.next_beat()
    group.complete(record)
    group.advance(0.11)
    group.respond_to_commit(ErrorCode.unknown_member_id)
    assert group.step().lost == orders(0)
    assert group.sends(Beat) == [beat]
    group.respond(error=ErrorCode.unknown_member_id)
    assert group.beating().member_epoch == 0
    assert len(group.sends(Beat)) == 1


def test_a_topic_that_the_metadata_lacks_is_begun_as_soon_as_it_is_known() -> None:
    group = Group("orders", "new", partitions={"orders": 4})
    group.topic_ids["new"] = b"new".ljust(16, b"!")
    group.start()
    group.respond(tp(0), tp(0, "new"))
    assert group.assigned == orders(0)
    # It is ours: the coordinator must not give it to somebody else while we learn its name.
    assert group.quiet().owned == group.ids(tp(0), tp(0, "new"))
    group.partitions["new"] = 1
    group.advance(3)
    assert group.assigned == {tp(0), tp(0, "new")}


def test_at_the_deadline_the_overdue_partition_is_lost_alone() -> None:
    group = Group(commit_mode="ack", rebalance_timeout=10.0)
    group.join(0, 1)
    group.receive(1)
    begun = group.now
    group.respond(tp(0))
    while not group.step().lost:
        for send in group.sends(OffsetCommitRequest):
            group.respond_to_commit(send=send)
        for _ in group.sends(Beat):
            assert group.quiet().owned is None
        group.advance(0.1)
        assert group.now < begun + 10
    assert 8.0 < group.now - begun < 10.0
    assert group.assigned == orders(0)
    assert group.beating().owned == group.ids(tp(0))


def test_a_partition_that_comes_back_is_a_new_assignment() -> None:
    group = Group(commit_mode="ack")
    group.join(0, 1)
    (record,) = group.receive(1)
    before = group.instance(1)
    group.respond(tp(0))
    group.step()
    group.respond(tp(0), tp(1))
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert group.assigned == orders(0, 1)
    assert group.instance(1) != before


def test_a_subscription_by_the_broker_is_changed_and_ended() -> None:
    group = Group(pattern=BrokerPattern("ord.*"), partitions={"orders": 4, "clicks": 1})
    group.start()
    joining = group.respond(tp(0))
    assert (joining.topics, joining.regex) == ((), "ord.*")
    group.quiet()
    assert group.core.subscription_state.subscription() == {"orders"}
    group.subscribe("clicks")
    assert group.beating().regex == ""
    assert group.quiet().topics == ("clicks",)
    assert group.assigned == orders(0)  # until the next assignment (KIP-70)


def test_unsubscribing_drains_commits_and_leaves() -> None:
    group = Group(commit_mode="ack", commit_interval=60.0)
    group.join(0)
    (record,) = group.receive(0)
    group.complete(record)
    call_id = group.unsubscribe()
    assert not group.sends(Beat)
    group.respond_to_commit()
    assert group.beating().member_epoch == -1
    assert call_id not in group.completed
    group.quiet(epoch=-1)
    assert group.completed[call_id].error is None
    assert [set(line.fields) for line in group.named("left the group")] == [set()]
    group.subscribe("orders")
    assert group.beating().member_epoch == 0


@pytest.mark.parametrize("responds", [True, False])
def test_unsubscribing_ends_within_close_timeout_while_commits_fail(responds: bool) -> None:
    group = Group(commit_mode="ack", commit_interval=60.0, close_timeout=8.0)
    group.join(0)
    (record,) = group.receive(0)
    group.complete(record)
    call_id, begun = group.unsubscribe(), group.now
    lost_after = None
    while call_id not in group.completed:
        assert group.now < begun + 30.0
        for send in group.sends(OffsetCommitRequest):
            group.respond_to_commit(ErrorCode.coordinator_load_in_progress, send=send)
        if group.heard(NotifyKind.LOST) and lost_after is None:
            lost_after = group.now - begun
        if group.sends(Beat):
            leaving = group.beating().member_epoch == -1
            if not leaving or responds:
                group.quiet(epoch=-1 if leaving else 1)
        group.advance(0.05)
    assert lost_after == pytest.approx(6.0, abs=0.2)
    assert group.now - begun == pytest.approx(6.0 if responds else 8.0, abs=0.2)
    assert group.assigned == frozenset()
    group.subscribe("orders")
    if not responds:  # only then another heartbeat may be sent
        group.fail(group.next_beat(), FailureKind.TIMEOUT)
    assert group.beating().member_epoch == 0


def test_unsubscribing_ends_when_all_of_its_timers_are_due_at_once_in_any_order() -> None:
    group = Group(commit_mode="ack", commit_interval=60.0, close_timeout=8.0)
    group.join(0)
    (record,) = group.receive(0)
    group.complete(record)
    call_id = group.unsubscribe()
    group.now += 100.0  # the process was suspended
    group.fire("close")
    assert call_id in group.completed
    assert group.assigned == frozenset()
    assert not {"close", "leave-commit", "leave-drain", "leave"} & set(group.timers)
    closing = group.close()
    group.advance(8.0)
    assert closing in group.completed
    assert group.core.leaving.closed


def test_a_static_member_says_that_it_will_be_back() -> None:
    group = Group(group_instance_id="one")
    group.join(0)
    group.close()
    leaving = group.respond(epoch=-2, assigns=False)
    assert (leaving.member_epoch, leaving.group_instance_id) == (-2, "one")
    assert group.core.leaving.closed


def test_a_static_member_closed_with_leave_leaves_the_group() -> None:
    group = Group(group_instance_id="one")
    group.join(0)
    group.core.leave_at_close(True)
    group.close()
    assert group.respond(epoch=-1, assigns=False).member_epoch == -1
    assert group.core.leaving.closed


def test_a_dynamic_member_closed_without_leaving_stops_heartbeats() -> None:
    group = Group()
    group.join(0)
    group.core.leave_at_close(False)
    group.close()
    assert group.core.leaving.closed
    assert group.sends(ConsumerGroupHeartbeatRequest) == []
    group.advance(20.0)
    assert group.sends(ConsumerGroupHeartbeatRequest) == []


def test_an_instance_id_that_an_earlier_self_holds_is_released() -> None:
    group = Group(group_instance_id="one")
    group.start()
    group.respond(error=ErrorCode.unreleased_instance_id)
    assert group.respond(error=ErrorCode.fenced_instance_id).member_epoch == -2
    assert group.respond(tp(0)).member_epoch == 0
    assert group.assigned == orders(0)


def test_leaving_waits_for_no_response_for_ever() -> None:
    group = Group()
    group.join(0)
    call_id = group.close()
    assert group.beating().member_epoch == -1
    group.advance(5.1)
    assert call_id in group.completed


def test_an_idle_loop_leaves_and_comes_back() -> None:
    group = Group(max_poll_interval=20.0)
    group.join(0)
    group.receive(0)
    while group.assigned:
        group.advance(0.5)
        for _ in group.sends(Beat):
            group.quiet()
    assert group.step().lost == orders(0)
    assert group.beating().member_epoch == 0


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ErrorCode.unsupported_assignor, InconsistentGroupError, "group.consumer.assignors"),
        (ErrorCode.invalid_request, InconsistentGroupError, "INVALID|invalid_request"),
        (ErrorCode.group_max_size_reached, InconsistentGroupError, "group.consumer.max.size"),
        (ErrorCode.invalid_regular_expression, InconsistentGroupError, "RE2"),
        (ErrorCode.group_id_not_found, InconsistentGroupError, "migration.policy"),
        (ErrorCode.group_authorization_failed, GroupAuthorizationError, "grant READ"),
        (ErrorCode.fenced_instance_id, FencedInstanceError, "give each member its own"),
    ],
)
def test_what_a_group_rejects_for_good_is_explained(
    error: ErrorCode, kind: type[FatalError], sentence: str
) -> None:
    group = Group(group_instance_id="one")
    group.start()
    group.respond(error=error, detail="the broker's words")
    with pytest.raises(kind, match=sentence):
        group.step()
    assert group.state() is MemberState.FATAL


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_server_error,
    ],
)
def test_what_passes_is_asked_again(error: ErrorCode) -> None:
    group = Group()
    group.join(0)
    group.respond(error=error)
    group.advance(1.0)
    again = group.respond(tp(0))
    assert again.owned == group.ids(tp(0))
    assert group.assigned == orders(0)


def test_auto_falls_back_on_the_classic_protocol() -> None:
    group = Group(group_protocol="auto")
    group.start()
    group.fail(group.next_beat(), FailureKind.UNSUPPORTED)
    assert len(group.named("using the classic group protocol")) == 1
    assert group.count(JoinGroupRequest) == 1
    group.give_id()
    group.rejoin(0, 1)
    assert group.assigned == orders(0, 1)
    assert not group.sends(Beat)


def test_auto_leaves_a_classic_group_as_it_is_if_the_broker_does_not_convert_it() -> None:
    group = Group(group_protocol="auto")
    group.start()
    group.respond(error=ErrorCode.group_id_not_found)
    assert group.count(JoinGroupRequest) == 1


def test_a_session_timeout_without_a_response_does_not_end_the_membership() -> None:
    group = Group(on_unconfirmed_membership="continue")
    group.join(0)
    for _ in range(20):
        group.fail(group.next_beat(), FailureKind.TIMEOUT)
        group.advance(3.0)
    assert group.named("membership unconfirmed: no heartbeat confirmed within the session timeout")
    assert group.assigned == orders(0)
    assert group.receive(0), "what is delivered goes on"
    group.respond(tp(0))
    assert group.named("membership is confirmed again")
    assert group.step().lost == frozenset()


def test_assigned_partitions_that_do_not_exist_make_no_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group()
    group.start()
    made: list[TopicPartition] = []

    def make(topic: str, number: int) -> TopicPartition:
        made.append(TopicPartition(topic, number))
        return made[-1]

    monkeypatch.setattr(target_assignment, "TopicPartition", make)
    ((topic_id, _),) = group.ids(tp(0))
    group.reply(
        group.next_beat(),
        ConsumerGroupHeartbeatResponse(
            error=ErrorCode.none,
            member_id="client-made",
            member_epoch=1,
            assignment=((topic_id, tuple(range(50_000))),),
        ),
    )
    assert group.assigned == orders(0, 1, 2, 3)
    assert set(made) == orders(0, 1, 2, 3)
    assert len(made) < 100
