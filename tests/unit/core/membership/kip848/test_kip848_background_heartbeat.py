"""What may be sent for a member of a consumer group (KIP-848) while its event loop is blocked, and
what the responses mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.membership.scripted_consumer_group import Beat, ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import orders

from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Failed,
    FailureKind,
    NotifyKind,
)
from asyncrevoke.client.core.membership.kip848.state_table import MemberState
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    HeartbeatResponse,
    OffsetCommitRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import TopicPartition


def member(**options: Unpack[ConsumerOptions]) -> ScriptedConsumerGroup:
    group = ScriptedConsumerGroup(**options)
    group.join(0, 1)
    group.quiet()
    return group


def background_heartbeat_of(group: ScriptedConsumerGroup) -> BackgroundHeartbeat:
    heartbeat = group.background_heartbeat
    assert heartbeat is not None
    return heartbeat


def said_by(group: ScriptedConsumerGroup) -> Beat:
    message = background_heartbeat_of(group).message
    assert isinstance(message, Beat)
    return message


def response(
    group: ScriptedConsumerGroup,
    *given: TopicPartition,
    epoch: int = 1,
    assigns: bool = False,
    error: ErrorCode = ErrorCode.none,
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error=error,
        member_epoch=epoch,
        heartbeat_interval=5.0,
        assignment=group.ids(*given) if assigns else None,
    )


def thread_received(
    group: ScriptedConsumerGroup,
    reply: ConsumerGroupHeartbeatResponse | Failed,
    *,
    heartbeat: BackgroundHeartbeat | None = None,
    ago: float = 0.0,
) -> None:
    """The loop runs again, and receives this response."""
    heartbeat = heartbeat or background_heartbeat_of(group)
    group.hear(BackgroundHeartbeatReply(heartbeat.heartbeat_id, group.now - ago, reply))


def is_full(beat: Beat) -> bool:
    return beat.owned is not None and beat.topics is not None


# -- what may be sent


def test_a_heartbeat_that_says_nothing_new_may_be_sent_for_us() -> None:
    group = member(group_instance_id="one")
    heartbeat = background_heartbeat_of(group)
    assert heartbeat.message == Beat(
        group_id="billing", member_id="client-made", member_epoch=1, group_instance_id="one"
    )
    sent = group.next_beat()
    assert heartbeat.node == sent.node
    assert heartbeat.timeout == sent.timeout
    assert heartbeat.interval == group.config.heartbeat_interval


def test_before_the_group_has_accepted_us_nothing_may_be_sent() -> None:
    group = ScriptedConsumerGroup()
    group.start()
    assert group.beating().member_epoch == 0
    assert group.background_heartbeat is None


def test_what_drains_is_not_acknowledged_by_it() -> None:
    group = member()
    group.respond(tp(0))
    assert group.state() is MemberState.RECONCILING
    assert said_by(group).owned is None


def test_it_may_be_sent_while_one_of_ours_has_no_response() -> None:
    # A loop that is blocked does not know whether it got a response, or was even sent.
    group = member()
    group.next_beat()
    assert said_by(group).member_epoch == 1


def test_each_epoch_replaces_it() -> None:
    group = member()
    group.respond(tp(0), tp(1), tp(2), epoch=2)
    assert said_by(group).member_epoch == 2


def test_a_coordinator_that_has_moved_replaces_it() -> None:
    group = member()
    group.coordinator = 2
    group.respond(error=ErrorCode.not_coordinator)
    node = background_heartbeat_of(group).node
    assert node is not None
    assert node.node_id == 2


def test_it_is_not_published_again_by_each_heartbeat() -> None:
    group = member()
    before = background_heartbeat_of(group)
    for _ in range(20):
        group.quiet()
    assert background_heartbeat_of(group) is before


def test_background_heartbeats_use_the_returned_epoch_and_end_after_an_error() -> None:
    group = member()
    after = background_heartbeat_of(group).next_message
    next_message = after(response(group, tp(0), epoch=3, assigns=True))
    assert next_message == Beat(
        group_id="billing", member_id="client-made", member_epoch=3, group_instance_id=None
    )
    assert after(HeartbeatResponse(error=ErrorCode.none)) is None
    rejections = [error for error in ErrorCode if error is not ErrorCode.none]
    assert not any(after(response(group, error=error)) for error in rejections)


ENDS: dict[str, Callable[[ScriptedConsumerGroup], object]] = {
    "closed": ScriptedConsumerGroup.close,
    "closed with a heartbeat open": lambda group: (group.next_beat(), group.close()),
    "unsubscribed": ScriptedConsumerGroup.unsubscribe,
    "put out": lambda group: group.respond(error=ErrorCode.unknown_member_id),
    "rejected": lambda group: group.respond(error=ErrorCode.group_authorization_failed),
}


@pytest.mark.parametrize("end", ENDS)
def test_after_the_membership_nothing_may_be_sent(end: str) -> None:
    group = member()
    ENDS[end](group)
    assert group.background_heartbeat is None


# -- what the responses mean


def test_a_confirmation_counts_from_when_it_was_asked_for_and_changes_nothing() -> None:
    group = member()
    group.now += 40.0
    thread_received(group, response(group), ago=0.5)
    assert group.core.health(group.now).heartbeat_age == pytest.approx(0.5)
    assert not is_full(group.quiet())
    assert group.assigned == orders(0, 1)


def test_an_assignment_received_in_the_background_is_requested_again_at_once() -> None:
    group = member()
    thread_received(group, response(group, tp(0), tp(1), tp(2), epoch=2, assigns=True))
    assert group.assigned == orders(0, 1)
    full = group.respond(tp(0), tp(1), tp(2), epoch=2)
    assert is_full(full)
    assert full.member_epoch == 2
    assert full.owned == group.ids(tp(0), tp(1))
    assert group.assigned == orders(0, 1, 2)


def test_several_epochs_may_be_received_in_the_background() -> None:
    group = member()
    for epoch in (2, 3, 4):
        thread_received(group, response(group, tp(0), tp(1), epoch=epoch, assigns=True))
    assert said_by(group).member_epoch == 4
    beats = [group.respond(tp(0), tp(1), epoch=4) for _ in range(2)]
    assert all(is_full(beat) for beat in beats)
    assert beats[-1].member_epoch == 4
    assert group.assigned == orders(0, 1)


def test_its_epoch_is_ours() -> None:
    group = member()
    thread_received(group, response(group, epoch=3))
    assert group.core.group_metadata().generation == 3
    assert group.quiet(epoch=3).member_epoch == 3


def lost_after(group: ScriptedConsumerGroup) -> float:
    """Partition 1 drains; how long until it is lost."""
    begun = group.now
    while not group.step().lost:
        for send in group.sends(OffsetCommitRequest):
            group.respond_to_commit(send=send)
        for _ in group.sends(Beat):
            group.respond(tp(0))
        group.advance(0.1)
        assert group.now < begun + 60
    assert group.assigned == orders(0)
    return group.now - begun


def test_a_revocation_received_in_the_background_is_due_from_then_on() -> None:
    group = member(rebalance_timeout=30.0, commit_mode="ack")
    group.receive(1)
    group.quiet()
    group.now += 20.0
    # The coordinator wanted it back while we were blocked, and would put us out 30 s later.
    thread_received(group, response(group), ago=15.0)
    thread_received(group, response(group, tp(0), assigns=True), ago=12.0)
    thread_received(group, response(group), ago=5.0)
    assert 16.0 < lost_after(group) < 18.0


def test_a_heartbeat_of_ours_that_was_open_does_not_make_it_later() -> None:
    group = member(rebalance_timeout=30.0, commit_mode="ack")
    group.receive(1)
    group.next_beat()
    group.now += 20.0
    thread_received(group, response(group, tp(0), assigns=True), ago=12.0)
    group.quiet()
    # Ours was sent before, and may have been what the coordinator decided upon.
    assert 8.0 < lost_after(group) < 10.0


def test_an_older_response_to_a_heartbeat_of_ours_does_not_take_us_back() -> None:
    group = member()
    open_one = group.next_beat()
    thread_received(group, response(group, tp(0), tp(1), tp(2), epoch=3, assigns=True))
    group.reply(open_one, response(group, tp(0), epoch=2, assigns=True))
    assert group.assigned == orders(0, 1)
    full = group.respond(tp(0), tp(1), tp(2), epoch=3)
    assert is_full(full)
    assert full.member_epoch == 3
    assert group.assigned == orders(0, 1, 2)


def test_a_late_response_to_our_acknowledgement_does_not_end_the_membership() -> None:
    group = member()
    group.respond(tp(0), tp(1), tp(2), epoch=2)
    late = group.next_beat()
    assert isinstance(late.message, Beat)
    assert late.message.owned is not None
    thread_received(group, response(group, epoch=4))
    group.reply(late, response(group, error=ErrorCode.fenced_member_epoch))
    full = group.respond(tp(0), tp(1), tp(2), epoch=4)
    assert is_full(full)
    assert full.member_epoch == 4
    assert not group.heard(NotifyKind.LOST)


@pytest.mark.parametrize(
    "error", [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.not_coordinator]
)
def test_errors_of_background_heartbeats_are_repeated_by_the_loops_heartbeat(
    error: ErrorCode,
) -> None:
    group = member()
    thread_received(group, response(group, error=error))
    assert not group.heard(NotifyKind.LOST)
    assert is_full(group.quiet())
    assert group.state() is MemberState.STABLE


def test_what_has_no_response_may_have_been_processed() -> None:
    group = member()
    thread_received(group, Failed(0, FailureKind.DISCONNECTED, "gone"))
    assert is_full(group.quiet())
    assert group.named("heartbeat from the thread failed; sending one from the event loop")


def test_a_response_for_a_membership_that_is_over_is_dropped() -> None:
    group = member()
    old = background_heartbeat_of(group)
    group.respond(error=ErrorCode.unknown_member_id)
    group.respond(tp(0), epoch=5)
    thread_received(group, response(group, epoch=9), heartbeat=old)
    group.quiet(epoch=5)
    assert said_by(group).member_epoch == 5


def test_a_response_to_one_that_was_replaced_counts() -> None:
    group = member()
    old = background_heartbeat_of(group)
    group.respond(tp(0), tp(1), tp(2), epoch=2)
    group.quiet(epoch=2)
    thread_received(group, response(group, epoch=3), heartbeat=old)
    assert said_by(group).member_epoch == 3
