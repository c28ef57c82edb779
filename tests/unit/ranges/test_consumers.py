"""Consumers that are made from a configuration."""

from __future__ import annotations

from asyncrevoke import ConsumerConfig
from asyncrevoke.replays.ranges.range_consumer import consumer_of, options_of


def test_a_consumer_has_the_configuration_that_it_is_made_from() -> None:
    for config in (
        ConsumerConfig(),
        ConsumerConfig(
            bootstrap_servers="kafka-1:9092",
            isolation_level="read_committed",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="me",
            sasl_plain_password="secret",
        ),
    ):
        assert consumer_of(config).config == config


def test_options_with_default_values_are_not_given() -> None:
    options = options_of(ConsumerConfig(max_poll_records=7))
    assert options.get("max_poll_records") == 7
    assert not {"sasl_mechanism", "group_id", "max_in_flight"} & options.keys()
