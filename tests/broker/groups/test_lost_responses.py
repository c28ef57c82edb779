"""What a real Apache Kafka makes of a member that repeats a heartbeat whose response was lost.

The simulated coordinator follows it (``asyncrevoke.testing.fake_kafka.consumer_group``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.groups.members_by_request import GroupRequests, RequestedKip848Member, connected, until
from broker.kafka_release import kafka_release

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.protocol import messages

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture
async def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> AsyncIterator[GroupRequests]:
    async with connected(kafka_broker, kafka_topic) as kafka:
        yield kafka


async def _asked_for_half(kafka: GroupRequests) -> RequestedKip848Member:
    """A member that had everything, and is to give up half of it for a second one."""
    first, second = RequestedKip848Member(kafka, "first"), RequestedKip848Member(kafka, "second")
    await until(first.beat, lambda: len(first.assigned) == 4)
    await first.beat(first.assigned)
    await second.beat()
    await until(first.beat, lambda: len(first.assigned) == 2)
    return first


async def test_a_heartbeat_acknowledgement_without_a_response_is_sent_again(
    kafka: GroupRequests,
) -> None:
    member = await _asked_for_half(kafka)
    lost = await member.ask(member.assigned)
    assert lost.error is ErrorCode.none
    assert lost.member_epoch > member.epoch
    again = await member.ask(member.assigned)
    assert again.error is ErrorCode.none
    assert again.member_epoch == lost.member_epoch


async def _response_that_assigns_less(
    kafka: GroupRequests, member: RequestedKip848Member
) -> messages.ConsumerGroupHeartbeatResponse:
    """The response to the member's acknowledgement, after two more members have joined; the member
    has not received it."""
    others = [RequestedKip848Member(kafka, "third"), RequestedKip848Member(kafka, "fourth")]
    for other in others:
        # The broker makes assignments at most once a second: until then there is no newer one.
        await until(other.beat, lambda: other.epoch > member.epoch + 1)  # noqa: B023 - used at once
    await until(others[0].beat, lambda: others[0].epoch == others[1].epoch)
    lost = await member.ask(member.assigned)
    assert lost.error is ErrorCode.none
    assert lost.assignment is not None
    left = frozenset(number for _, numbers in lost.assignment for number in numbers)
    assert left < member.assigned
    return lost


@pytest.mark.skipif(
    kafka_release() < (4, 3), reason="needs Apache Kafka 4.3: older brokers fence the member"
)
async def test_a_full_heartbeat_returns_the_assignment_of_a_lost_response(
    kafka: GroupRequests,
) -> None:
    member = await _asked_for_half(kafka)
    lost = await _response_that_assigns_less(kafka, member)
    assert lost.member_epoch == member.epoch
    again = await member.ask(member.assigned)
    assert (again.error, again.assignment) == (ErrorCode.none, None)
    whole = await member.ask(member.assigned, full=True)
    assert (whole.error, whole.assignment) == (ErrorCode.none, lost.assignment)


@pytest.mark.skipif(
    kafka_release() >= (4, 3), reason="needs Apache Kafka 4.2 or older: later ones repeat it"
)
async def test_brokers_before_4_3_fence_a_member_that_repeats_a_heartbeat_after_a_lost_assignment(
    kafka: GroupRequests,
) -> None:
    member = await _asked_for_half(kafka)
    lost = await _response_that_assigns_less(kafka, member)
    assert lost.member_epoch > member.epoch
    again = await member.ask(member.assigned)
    assert again.error is ErrorCode.fenced_member_epoch
