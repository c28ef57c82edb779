"""No error shows a user and a password that an address or another option contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import Consumer, ConsumerConfig
from asyncrevoke.config.topics import check_pattern, check_topics
from asyncrevoke.errors import AsyncRevokeError, ConfigError
from asyncrevoke.journal import KafkaSink
from asyncrevoke.printable import printable
from asyncrevoke.runtime.net.kafka_clients import kafka_producer

if TYPE_CHECKING:
    from collections.abc import Callable

PASSWORD = "planted-password"

OPTIONS: list[dict[str, Any]] = [
    {"bootstrap_servers": f"user:{PASSWORD}@kafka-1:9092"},
    {"bootstrap_servers": f"{PASSWORD}@kafka-1:9092"},
    {"bootstrap_servers": f"kafka-0:9092,user:{PASSWORD}@kafka-1:9092"},
    {"bootstrap_servers": f"user:{PASSWORD},2@kafka-1:9092"},
    {"bootstrap_servers": f"user:{PASSWORD}@2@kafka-1:9092"},
    {"bootstrap_servers": f"user:{PASSWORD} 2@kafka-1:9092"},
    {"bootstrap_servers": f"[user:{PASSWORD}@::1"},
    {"bootstrap_servers": f"SASL_SSL://user:{PASSWORD}@kafka-1:9092"},
    {"bootstrap_servers": (f"user:{PASSWORD}@kafka-1:9092",)},
    {"bootstrap_servers": f"user:{PASSWORD}@kafka-1:9092".encode()},
    {"bootstrap_servers": (f"user:{PASSWORD}@kafka-1:9092".encode(),)},
    {"security_protocol": f"SASL_SSL://user:{PASSWORD}@kafka-1:9092"},
    {"sasl_mechanism": f"PLAIN user:{PASSWORD}@kafka-1"},
    {"ssl_context": f"https://user:{PASSWORD}@vault/ca.pem"},
    {"sasl_oauth_token_provider": f"https://user:{PASSWORD}@idp/token"},
    {"request_timeout": f"user:{PASSWORD}@kafka-1"},
    {"assignors": f"user:{PASSWORD}@kafka-1"},
    {"assignors": (f"user:{PASSWORD}@kafka-1",)},
    {"order_by": f"user:{PASSWORD}@kafka-1"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: str(*options))
def test_an_invalid_option_is_shown_without_user_and_password(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig(**options)
    assert PASSWORD not in str(error.value)


def test_an_address_with_a_user_is_refused_with_the_options_to_use() -> None:
    with pytest.raises(ConfigError, match=r"'…@kafka-1:9092'.*sasl_plain_username and sasl_plain_"):
        ConsumerConfig(bootstrap_servers=f"user:{PASSWORD}@kafka-1:9092")


@pytest.mark.parametrize("topic", [f"user:{PASSWORD}@topic", f"a,{PASSWORD}@b", f"{PASSWORD}@x.*"])
def test_an_invalid_topic_or_pattern_is_shown_without_user_and_password(topic: str) -> None:
    async def handle(_record: bytes) -> None: ...

    consumer = Consumer(group_id="billing")
    calls: list[Callable[[], object]] = [
        lambda: check_topics((topic,), "subscribe"),
        lambda: check_topics(([topic],), "subscribe"),
        lambda: check_pattern(topic + "("),
        lambda: consumer.handler(pattern=topic + "(")(handle),
    ]
    for call in calls:
        with pytest.raises(ConfigError) as error:
            call()
        assert PASSWORD not in str(error.value)


def test_clients_of_aiokafka_get_no_address_with_a_password() -> None:
    servers = f"user:{PASSWORD}@kafka-1:9092"
    calls: list[Callable[[], object]] = [
        lambda: kafka_producer(bootstrap_servers=servers),
        lambda: KafkaSink("journal", bootstrap_servers=servers),
    ]
    for call in calls:
        with pytest.raises(ConfigError) as error:
            call()
        assert PASSWORD not in str(error.value)


def test_a_url_in_any_error_or_log_line_is_shown_without_user_and_password() -> None:
    cause = OSError(f"no route to http://user:{PASSWORD}@proxy:3128/x, tried https://a:b@c/")
    shown = str(AsyncRevokeError(f"the token provider failed: {cause!r}"))
    assert PASSWORD not in shown
    assert "http://…@proxy:3128/x" in shown
    assert "https://…@c/" in shown
    assert printable(f"https://u:{PASSWORD}@2@host/") == "https://…@host/"
    for plain in ("https://host/a", "a@b", "@x://y", "://", "@"):
        assert printable(plain) == plain


def test_a_text_of_many_urls_is_read_in_linear_time() -> None:
    text = "://a" * 1900 + "@"
    assert str(AsyncRevokeError(text)) == "://…@"
