"""Checks the topics and patterns that a user names, before a request has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import BrokerPattern
from asyncrevoke.client.printable import host_and_port, shown_option

if TYPE_CHECKING:
    from collections.abc import Iterable

# Limits of one subscription: the leader of a group reads at most 4 MiB of a member, including the
# partitions that the member owns.
MAX_TOPICS: Final = 100_000
MAX_TOPIC_BYTES: Final = 3 * 2**19
# Of one member: each partition that is started takes about 40 µs and 4 KiB.
MAX_ASSIGNED: Final = 100_000
_WITH_PATTERN: Final = ("Consumer", "subscribe", "handler")
_NAMES: Final = "letters, digits, '.', '_' and '-', at most 249 of them"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Whether Kafka accepts this name for a topic: 1 to 249 letters, digits, ``.``, ``_`` and
    ``-``, but not ``.`` or ``..``."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


# Errors of `re` about patterns that are errors in RE2, too.
_UNBALANCED = ("missing ), unterminated subpattern", "unbalanced paren", "unterminated character")


def create_topics_command(host: str, port: int, topics: Iterable[str]) -> str:
    """The command that creates these topics, with the broker's default partitions and replicas."""
    server = host_and_port(host, port)
    return f"asyncrevoke topics create {' '.join(topics)} --bootstrap-servers {server}"


def check_topics(topics: tuple[object, ...], call: str) -> tuple[str, ...]:
    """Distinct legal topic names; ``call`` is what the user wrote, such as ``subscribe``."""
    for topic in topics:
        if isinstance(topic, str):
            _check_name(topic, call)
            continue
        if isinstance(topic, (list, tuple, set, frozenset)):
            items = list(cast("set[object]", topic))
            names = ", ".join(shown_option(name) for name in items)
            raise ConfigError(f"topics are given one by one, not in a list: use {call}({names})")
        raise ConfigError(
            f"{call} takes names of topics, not {shown_option(topic)} ({type(topic).__name__})"
        )
    distinct = tuple(dict.fromkeys(cast("tuple[str, ...]", topics)))
    size = subscription_bytes(distinct)
    if len(distinct) > MAX_TOPICS or size > MAX_TOPIC_BYTES:
        raise ConfigError(
            f"{call} got {len(distinct):,} topics, whose names have {size:,} bytes: at most "
            f"{MAX_TOPICS:,} topics with {MAX_TOPIC_BYTES:,} bytes can be assigned to a member"
        )
    return distinct


def subscription_bytes(topics: Iterable[str]) -> int:
    """The bytes that the names of topics take in a subscription, each with its length."""
    return sum(len(name) + 2 for name in topics)


def check_pattern(pattern: object) -> re.Pattern[str] | BrokerPattern | None:
    """A regular expression, with its flags if it was compiled, or a pattern that the broker
    resolves, or None."""
    if pattern is None:
        return None
    if isinstance(pattern, BrokerPattern):
        return _checked_broker_pattern(pattern)
    text, given = pattern, shown_option(pattern)
    if isinstance(pattern, re.Pattern):
        text = cast("re.Pattern[str]", pattern).pattern
    if not isinstance(text, str) or not text:
        raise ConfigError(f"pattern is a regular expression, not {given}")
    try:
        return re.compile(cast("str | re.Pattern[str]", pattern))
    except re.error as error:
        raise ConfigError(
            f"pattern={shown_option(text)} is not a regular expression: {error}"
        ) from error


def _checked_broker_pattern(pattern: BrokerPattern) -> BrokerPattern:
    regex = cast("object", pattern.regex)
    if isinstance(regex, re.Pattern):
        raise ConfigError(
            "BrokerPattern takes text in RE2 syntax, not a compiled pattern, whose flags Python "
            'applies: write flags in the text, as in "(?i)orders-.*"'
        )
    if not isinstance(regex, str) or not regex:
        raise ConfigError('BrokerPattern takes a regular expression, like "orders-.*"')
    try:
        re.compile(regex)
    except re.error as error:
        # RE2 has syntax that Python does not know, and quotes text between \\Q and \\E.
        if "\\Q" not in regex and error.msg.startswith(_UNBALANCED):
            raise ConfigError(
                f"BrokerPattern({shown_option(regex)}) is not a regular expression: {error}"
            ) from error
    return pattern


def reject_both(topics: tuple[str, ...], pattern: re.Pattern[str] | BrokerPattern | None) -> None:
    """Raise ConfigError if both topics and a pattern are given."""
    if topics and pattern is not None:
        text = pattern.regex if isinstance(pattern, BrokerPattern) else pattern.pattern
        raise ConfigError(
            "topics and pattern exclude each other: give names, or one pattern that matches "
            "them, for example "
            f"pattern={shown_option('|'.join(map(re.escape, topics)) + '|' + text)}"
        )


def check_topic(topic: object, option: str, several: str = "") -> str:
    """A legal topic name. ``several`` says what to use instead of several topics."""
    if isinstance(topic, str) and is_legal_topic(topic):
        return topic
    if isinstance(topic, str):
        raise ConfigError(f"{option}: {shown_option(topic)} is not a valid topic name: {_NAMES}")
    shown = shown_option(topic)
    hint = f": {several}" if several and isinstance(topic, (list, tuple, set, frozenset)) else ""
    raise ConfigError(f"{option} takes the name of one topic, not {shown}{hint}")


def _check_name(topic: str, call: str) -> None:
    if is_legal_topic(topic):
        return
    hint = _NAMES
    if call in _WITH_PATTERN and "@" not in topic and any(char in topic for char in "*^$[]()|+?"):
        hint = f'for a regular expression use {call}(pattern="{topic}")'
    elif "@" not in topic and "," in topic:
        names = ", ".join(f'"{name.strip()}"' for name in topic.split(","))
        hint = f"topics are given one by one: use {call}({names})"
    raise ConfigError(f"{shown_option(topic)} is not a valid topic name: {hint}")
