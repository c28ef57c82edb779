"""Brokers without the protocol of KIP-848."""

from __future__ import annotations

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group

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
