"""What a real Apache Kafka makes of a JoinGroup that it processes after its member's LeaveGroup.

The simulated coordinators follow it (``tests/simulation/test_converting_group.py``), and classic
members leave accordingly (``tests/unit/core/membership/leaving/test_leaving_while_joining.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.groups.members_by_request import (
    GroupRequests,
    RequestedClassicMember,
    RequestedKip848Member,
    connected,
    until,
)

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture
async def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> AsyncIterator[GroupRequests]:
    async with connected(kafka_broker, kafka_topic) as kafka:
        yield kafka


async def test_a_coordinator_that_assigns_adds_the_member_that_has_left(
    kafka: GroupRequests,
) -> None:
    modern, classic = RequestedKip848Member(kafka, "modern"), RequestedClassicMember(kafka)
    await until(modern.beat, lambda: len(modern.assigned) == 4)
    assert await classic.join() == frozenset()
    await kafka.evict(classic.member_id)
    assert await classic.beat() is ErrorCode.unknown_member_id
    # Not a word that it is another member: only its heartbeats are accepted as a member's again.
    assert await classic.join() == frozenset()
    assert await classic.beat() in (ErrorCode.none, ErrorCode.rebalance_in_progress)
    await kafka.evict(classic.member_id)


async def test_a_classic_group_rejects_the_member_that_has_left(kafka: GroupRequests) -> None:
    first = RequestedClassicMember(kafka)
    await first.join()
    await kafka.evict(first.member_id)
    assert await first.join() is ErrorCode.unknown_member_id
