"""The error of every mistake in an option names the fix."""

from __future__ import annotations

import dataclasses
import json
import re
import ssl
import subprocess
import sys
from datetime import timedelta
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.client.config import ASSIGNORS, ConsumerConfig, ConsumerOptions, OwnAssignor
from asyncrevoke.client.core.assignors.cooperative_sticky import CooperativeStickyAssignor
from asyncrevoke.client.errors import ConfigError

SASL: dict[str, object] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}

MISTAKES: list[tuple[dict[str, object], str]] = [
    # Names of other clients.
    ({"session_timeout_ms": 10_000}, "use session_timeout=10.0"),
    ({"heartbeat_interval_ms": 3000}, "use heartbeat_interval=3.0"),
    ({"fetch_max_wait_ms": 500}, "use fetch_max_wait=0.5"),
    ({"request_timeout_ms": "40000"}, "use request_timeout=... with a number"),
    ({"session.timeout.ms": 10_000}, "use session_timeout=10.0"),
    ({"bootstrap.servers": "localhost"}, "bootstrap_servers=..."),
    ({"enable_auto_commit": False}, 'commit_mode: "processed"'),
    ({"auto_commit_interval_ms": 5000}, "use commit_interval=5.0"),
    ({"partition_assignment_strategy": []}, 'use assignors=("cooperative-sticky",)'),
    ({"value_deserializer": json.loads}, "decode record.value yourself"),
    ({"key_deserializer": json.loads}, "decode record.key yourself"),
    ({"consumer_timeout_ms": 1000}, "poll(timeout=...)"),
    ({"rack_id": "a"}, "use client_rack="),
    ({"topics": ["orders"]}, 'Consumer("orders"'),
    ({"lifespan": print}, "use resources=..., an async context manager"),
    ({"on_startup": [print]}, "what it yields is context.state in handlers"),
    # Unknown names.
    ({"sesion_timeout": 10}, "did you mean session_timeout"),
    ({"grupid": "billing"}, "did you mean group_id"),
    ({"qwertz": 1}, "described at asyncrevoke.config.ConsumerConfig"),
    ({"qwertz_ms": 1}, "there is no option qwertz_ms"),
    # Values.
    ({"auto_offset_reset": "none"}, 'use auto_offset_reset="error"'),
    ({"auto_offset_reset": "newest"}, '"earliest" or "latest" or "error" or a timedelta'),
    ({"auto_offset_reset": timedelta(hours=-1)}, "use a positive one"),
    ({"group_protocol": "modern"}, '"classic" or "consumer" or "auto"'),
    ({"server_assignor": "range"}, 'use group_protocol="consumer", or choose by assignors'),
    ({"group_remote_assignor": "range"}, "use server_assignor"),
    ({"group_protocol": "consumer", "assignors": ("range",)}, "use server_assignor"),
    ({"group_protocol": "consumer", "session_timeout": 9}, "group.consumer.session.timeout.ms"),
    ({"commit_mode": "auto"}, '"processed" or "ack" or "manual"'),
    ({"order_by": "topic"}, '"key" or "partition" or None'),
    ({"assignors": "range"}, "use assignors=('range',)"),
    ({"assignors": ()}, "assignors is empty"),
    ({"assignors": ("stiky",)}, "there is no assignor stiky"),
    ({"assignors": ("rang",)}, "did you mean range?"),
    ({"assignors": ("range", "range")}, "names one twice"),
    ({"assignors": (1,)}, "takes names, or objects with name, protocols"),
    ({"assignors": (OwnAssignor,)}, "takes names, or objects with name, protocols"),
    ({"assignors": (CooperativeStickyAssignor(),)}, "needs a name of its own"),
    ({"assignors": 1}, "takes names like"),
    ({"session_timeout": "10"}, "in seconds, a number, not '10' (str)"),
    ({"session_timeout": True}, "a number, not True (bool)"),
    ({"session_timeout": timedelta(seconds=10)}, "use session_timeout=10.0"),
    ({"session_timeout": 0}, "more than 0 s"),
    ({"session_timeout": float("nan")}, "more than 0 s"),
    ({"session_timeout": float("inf")}, "more than 0 s"),
    ({"max_poll_interval": 300_000}, "if these were milliseconds, use max_poll_interval=300.0"),
    ({"session_timeout": 45_000}, "if these were milliseconds, use session_timeout=45.0"),
    ({"commit_interval": 5_000}, "if these were milliseconds, use commit_interval=5.0"),
    ({"request_timeout": 40_000}, "if these were milliseconds, use request_timeout=40.0"),
    ({"close_timeout": -1}, "at least 0 s"),
    ({"heartbeat_interval": 30}, "use heartbeat_interval=15, or a longer session_timeout"),
    ({"heartbeat_interval": 3000}, "3000 s is more than half of the session_timeout of 45 s"),
    ({"revoke_timeout": 301}, "raise rebalance_timeout, or lower revoke_timeout"),
    ({"revoke_timeout": 301}, "301 s is more than the rebalance_timeout of 300 s"),
    ({"fetch_max_wait": 500}, "500 s must be less than the request_timeout of 40 s"),
    ({"fetch_max_wait": 40}, "lower fetch_max_wait, or raise request_timeout"),
    ({"session_timeout": 10, "group_protocol": "consumer"}, "session_timeout=10 s: with"),
    ({"max_poll_records": 0}, "between 1 and"),
    ({"max_poll_records": 1.5}, "a whole number"),
    ({"max_in_flight": 2**31}, "between 1 and 2147483647"),
    ({"concurrency": True}, "a whole number, not True"),
    ({"auto_delay_revoke": 1}, "True or False"),
    ({"group_id": ""}, "group_id is empty"),
    ({"group_id": 5}, "group_id is a string"),
    ({"group_instance_id": "a"}, "give a group_id"),
    # Addresses.
    ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
    ({"bootstrap_servers": []}, "bootstrap_servers is empty"),
    ({"bootstrap_servers": 9092}, "takes names like"),
    ({"bootstrap_servers": "kafka://localhost:9092"}, "write host:port"),
    ({"bootstrap_servers": "localhost:kafka"}, "write host:port"),
    ({"bootstrap_servers": "localhost:0"}, "write host:port"),
    ({"bootstrap_servers": "localhost:65536"}, "write host:port"),
    ({"bootstrap_servers": "localhost:"}, "write host:port"),
    ({"bootstrap_servers": ":9092"}, "write host:port"),
    ({"bootstrap_servers": "::1:9092"}, "in brackets, like [::1]:9092"),
    ({"bootstrap_servers": "[::1"}, "looks like [::1]:9092"),
    ({"bootstrap_servers": "[::1]9092"}, "looks like [::1]:9092"),
    # Names of other clients.
    ({"acks": "all"}, "acknowledged by all in-sync replicas: leave it out"),
    ({"max_workers": 4}, "use concurrency=..."),
    # Security.
    ({"ssl_context": object()}, "ssl.create_default_context("),
    ({"ssl_context": ssl.create_default_context()}, 'use security_protocol="SSL"'),
    ({"sasl_plain_password": "secret"}, "use security_protocol SASL_PLAINTEXT or SASL_SSL"),
    ({"security_protocol": "SSL", "sasl_plain_username": "me"}, "use security_protocol SASL_SSL"),
    ({"security_protocol": "TLS"}, '"SASL_SSL"'),
    ({"sasl_mechanism": "SCRAM-SHA-512"}, "use security_protocol SASL_PLAINTEXT or SASL_SSL"),
    ({"sasl_mechanism": "PLAIN"}, "use security_protocol SASL_PLAINTEXT or SASL_SSL"),
    (
        {"sasl_mechanism": "SCRAM-SHA-256", "security_protocol": "SSL"},
        "use security_protocol SASL_SSL",
    ),
    (SASL, "needs sasl_plain_username and sasl_plain_password"),
    ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider"),
    ({"sasl_oauth_token_provider": object()}, "async def token"),
    (
        {"sasl_oauth_token_provider": type("Tokens", (), {"token": str})},
        "not the class Tokens",
    ),
]


def name_of(options: dict[str, object]) -> str:
    """The first of them, without addresses: the same in each run."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(next(iter(options.items()))))


@pytest.mark.parametrize(
    ("options", "fix"), MISTAKES, ids=[name_of(options) for options, _ in MISTAKES]
)
def test_an_invalid_option_raises_an_error_that_names_the_fix(
    options: dict[str, object], fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_options(**options)
    assert fix in str(caught.value)


def test_each_option_of_handlers_alone_names_the_handler() -> None:
    from asyncrevoke.handlers.policy.registration import HandlerOptions

    own = set(HandlerOptions.__annotations__) - set(ConsumerOptions.__annotations__)
    for name in own - {"decoder", "pattern"}:  # the consumer takes these, too
        with pytest.raises(ConfigError, match=rf'@consumer.handler\("orders", {name}=...\)'):
            ConsumerConfig.from_options(**{name: None})


def test_defaults_are_as_documented() -> None:
    config = ConsumerConfig()
    assert config.bootstrap_servers == ("localhost:9092",)
    assert (config.session_timeout, config.heartbeat_interval) == (45.0, 1.0)
    assert (config.rebalance_timeout, config.max_poll_interval) == (300.0, 300.0)
    assert (config.close_timeout, config.request_timeout, config.delayed_revoke_poll_interval) == (
        25.0,
        40.0,
        0.25,
    )
    assert config.assignors == ("cooperative-sticky",)
    assert (config.commit_mode, config.auto_offset_reset) == ("processed", "earliest")
    assert (config.max_in_flight, config.concurrency, config.order_by) == (2000, 64, "key")
    assert config.buffer_memory == 64 * 1024 * 1024
    assert config.revoke_timeout is None


def test_each_option_has_the_same_type_in_the_constructor_and_the_config() -> None:
    ours = {field.name for field in dataclasses.fields(ConsumerConfig)}
    assert set(ConsumerOptions.__annotations__) == ours
    for field in dataclasses.fields(ConsumerConfig):
        annotation = ConsumerOptions.__annotations__[field.name]
        assert annotation.__forward_arg__ == field.type


def test_the_config_accepts_exactly_the_existing_assignors() -> None:
    from asyncrevoke.client.core.assignors.registry import ASSIGNORS as EXISTING

    assert set(ASSIGNORS) == set(EXISTING)


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b:2, ", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        (("a",), [("a", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[fe80::1]", [("fe80::1", 9092)]),
        ("10.0.0.1:29092", [("10.0.0.1", 29092)]),
    ],
)
def test_bootstrap_addresses_are_parsed(
    servers: str | list[str], addresses: list[tuple[str, int]]
) -> None:
    assert list(ConsumerConfig(bootstrap_servers=servers).addresses) == addresses


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        addresses = ConsumerConfig(bootstrap_servers=text).addresses
    except ConfigError:
        return
    assert addresses
    assert all(host and 0 < port < 65536 for host, port in addresses)


def test_no_repr_contains_a_secret() -> None:
    config = ConsumerConfig(
        security_protocol="SASL_PLAINTEXT", sasl_plain_username="me", sasl_plain_password="hunter2"
    )
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config)


def test_a_secret_of_the_wrong_type_is_not_shown_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_options(sasl_plain_password=b"hunter2")
    assert "hunter2" not in str(caught.value)


def test_tls_without_a_given_context_uses_a_default_one() -> None:
    assert isinstance(ConsumerConfig(security_protocol="SSL").ssl_context, ssl.SSLContext)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConsumerConfig().group_id = "other"  # type: ignore[misc]


def test_type_hints_can_be_resolved_where_they_need_no_extra_import() -> None:
    hints = get_type_hints(ConsumerOptions, localns={"ssl": ssl, "AbstractTokenProvider": object})
    assert hints["session_timeout"] is float


HEAVY = {"aiokafka", "kio", "structlog"}


@pytest.mark.parametrize(
    "statement",
    [
        "import asyncrevoke",
        "import asyncrevoke.config",
        "from asyncrevoke import Consumer, Router",
    ],
)
def test_nothing_heavy_is_loaded_before_a_consumer_is_constructed(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint(*({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert not HEAVY & set(loaded)


def test_public_names_are_loaded_when_they_are_used() -> None:
    import asyncrevoke

    for name in asyncrevoke.__all__:
        found = getattr(asyncrevoke, name)
        # An alias has the name of what it stands for, and a member of an Enum no __name__.
        assert name == "CallNext" or name in (
            getattr(found, "__name__", None),
            getattr(found, "name", None),
        )
    assert set(asyncrevoke.__all__) <= set(dir(asyncrevoke))
    with pytest.raises(AttributeError, match="Consumr"):
        getattr(asyncrevoke, "Consumr")  # noqa: B009 - a misspelling, which checkers would reject
