"""Brokers without the protocol of KIP-848."""

from __future__ import annotations

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.kip848.state_table import MemberState
from asyncrevoke.client.errors import UnsupportedVersionError
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
)


@pytest.mark.parametrize(
    ("features", "lacks", "has"),
    [
        ({"metadata.version": 27}, "group.version=1", "rebalance.protocols"),
        ({"group.version": 0}, "group.version=1", "rebalance.protocols"),
        ({"group.version": 1}, "`consumer` in group.coordinator.rebalance.protocols", "feature"),
    ],
)
def test_a_cluster_that_rejects_the_protocol_is_told_the_one_thing_that_it_lacks(
    features: dict[str, int], lacks: str, has: str
) -> None:
    group = Group()
    group.start()
    group.respond(error=ErrorCode.unsupported_version)  # Apache Kafka 4.4 gives no reason
    asked, _ = group.only(ApiVersionsRequest)
    group.reply(asked, ApiVersionsResponse(error=ErrorCode.none, ranges={}, features=features))
    with pytest.raises(UnsupportedVersionError) as raised:
        group.step()
    assert "cannot be used for group 'billing': the brokers must have " in str(raised.value)
    assert lacks in str(raised.value)
    assert has not in str(raised.value)
    assert '"auto"' in str(raised.value)
    assert group.state() is MemberState.FATAL


def test_a_cluster_that_does_not_tell_its_features_is_told_all_that_it_may_lack() -> None:
    group = Group()
    group.start()
    group.respond(error=ErrorCode.unsupported_version)
    group.fail(group.only(ApiVersionsRequest)[0], FailureKind.TIMEOUT, "no response")
    with pytest.raises(UnsupportedVersionError) as raised:
        group.step()
    assert "group.version=1" in str(raised.value)
    assert "rebalance.protocols" in str(raised.value)


def test_closing_while_the_features_are_asked_needs_no_response() -> None:
    group = Group()
    group.start()
    group.respond(error=ErrorCode.unsupported_version)
    asked, _ = group.only(ApiVersionsRequest)
    call_id = group.close()
    group.reply(asked, ApiVersionsResponse(error=ErrorCode.none, ranges={}))
    group.advance(5.1)
    assert call_id in group.completed


@pytest.mark.parametrize(
    "detail",
    [
        'the broker offers Metadata 0 to 9, which has no topic ids: use group_protocol="auto"',
        "the broker offers ConsumerGroupHeartbeat 0, without regular expressions: name topics",
    ],
)
def test_a_request_that_cannot_be_sent_is_told_by_its_own_reason_alone(detail: str) -> None:
    """The feature may be on, and "auto" has no regular expressions of brokers either."""
    group = Group()
    group.start()
    group.fail(group.next_beat(), FailureKind.UNSUPPORTED, detail)
    with pytest.raises(UnsupportedVersionError) as raised:
        group.step()
    assert str(raised.value) == (
        f"group_protocol=\"consumer\" (KIP-848) cannot be used for group 'billing': {detail}"
    )
