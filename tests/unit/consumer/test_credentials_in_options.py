"""No error shows a user and a password that an address or another option contains."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import asyncrevoke
from asyncrevoke import Consumer, ConsumerConfig, Retry
from asyncrevoke.broker.choice import VARIABLE, start_broker
from asyncrevoke.client.config.topics import check_pattern, check_topics
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError
from asyncrevoke.client.printable import printable, shown_option
from asyncrevoke.journal import Journal, KafkaSink

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


def test_an_address_with_a_user_is_rejected_with_the_options_to_use() -> None:
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


def test_the_sink_of_a_journal_gets_no_address_with_a_password() -> None:
    with pytest.raises(ConfigError) as error:
        KafkaSink("journal", bootstrap_servers=f"user:{PASSWORD}@kafka-1:9092")
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


def _calls_with(value: str) -> dict[str, Callable[[], object]]:
    """Calls that reject ``value``."""
    consumer = Consumer(group_id="billing")
    options: dict[str, Any] = {value: 1}
    return {
        "topic": lambda: consumer.handler(value),
        "topic-object": lambda: consumer.handler(cast("Any", [value])),
        "unknown-option": lambda: consumer.handler("orders", **options),
        "on-error": lambda: consumer.handler("orders", on_error=cast("Any", value)),
        "retry": lambda: consumer.handler("orders", retry=cast("Any", value)),
        "rate-limit": lambda: consumer.handler("orders", rate_limit=cast("Any", value)),
        "dead-letter": lambda: consumer.handler("orders", dead_letter=value),
        "publish-to": lambda: consumer.handler("orders", publish_to=value),
        "retry-seconds": lambda: Retry(backoff=cast("Any", value)),
        "journal-content": lambda: Journal("nowhere", content=cast("Any", value)),
        "broker": lambda: start_broker(environ={VARIABLE: value.replace(":", "=")}),
    }


@pytest.mark.parametrize("call", _calls_with("x"))
def test_what_is_rejected_is_quoted_short_and_without_user_and_password(call: str) -> None:
    for value in (f"user:{PASSWORD}@kafka-1", f"user:{PASSWORD}@" + "\x1b]0;\n" * 50_000):
        with pytest.raises(AsyncRevokeError) as error:
            _calls_with(value)[call]()
        message = str(error.value)
        assert PASSWORD not in message
        assert message.isprintable()
        assert len(message) < 1000


def test_errors_about_options_quote_values_by_one_function() -> None:
    """``{value!r}`` shows passwords, and as much as there is."""
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(part.value)}"
        for path in Path(asyncrevoke.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("ConfigError", "TargetError")
        for part in ast.walk(node)
        if isinstance(part, ast.FormattedValue) and part.conversion == ord("r")
    ]
    assert not found


def test_an_option_whose_repr_fails_is_named_by_its_type() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError(PASSWORD)

    assert shown_option(Broken()) == "a Broken, whose repr() raises RuntimeError"
