"""Brokers without the protocol of KIP-848."""

from __future__ import annotations

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.errors import UnsupportedVersionError
from asyncrevoke.client.protocol.messages import ErrorCode


def test_brokers_with_the_feature_group_version_at_0_are_told_what_they_lack() -> None:
    group = Group()
    group.start()
    group.respond(error=ErrorCode.unsupported_version)  # Apache Kafka 4.4 gives no reason
    with pytest.raises(UnsupportedVersionError) as raised:
        group.step()
    text = str(raised.value)
    assert "for group 'billing': the brokers must be Apache Kafka 4.0 or later" in text
    assert "group.version=1" in text


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
