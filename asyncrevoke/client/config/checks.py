"""Checks of single options: each takes the option's name and value, and returns the value to keep.
They raise ConfigError with a sentence that names the fix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias, cast

from asyncrevoke.client.config.names import explain_unknown
from asyncrevoke.client.config.record_function import check_record_function
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

Check: TypeAlias = Callable[[str, object], object]

DEFAULT_PORT = 9092
# Apache Kafka creates no credentials with more than 16384.
SCRAM_MAX_ITERATIONS = 100_000
FETCH_MAX_BYTES = 50 * 1024 * 1024
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
# Limits of options for which longer times are milliseconds by mistake.
HOUR = 3600.0
DAY = 24 * HOUR
# Kafka carries times as 32 bits of milliseconds and sizes as 32 bits of bytes.
_MOST_SECONDS = 2_147_483.0
_MOST_BYTES = 2_147_483_647


def parse_address(server: str) -> tuple[str, int]:
    """``"host:port"``, ``"host"`` or ``"[ipv6]:port"`` as (host, port). Raises ConfigError."""
    text = server.strip()
    given = f"bootstrap_servers: {shown_option(server)}"
    if "@" in text:
        raise ConfigError(
            f"{given} has an @, which no address has; write host:port, and give user and password "
            "by sasl_plain_username and sasl_plain_password"
        )
    if "://" in text:
        raise ConfigError(
            f"{given} has a scheme; write host:port, and choose the protocol by security_protocol"
        )
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ConfigError(f"{given} is not an address; an IPv6 one looks like [::1]:9092")
        port_text = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") > 1:
        raise ConfigError(
            f"{given} is ambiguous; put the IPv6 address in brackets, like [::1]:9092"
        )
    else:
        host, colon, port_text = text.partition(":")
        port_text = port_text if colon else str(DEFAULT_PORT)
    is_port = port_text.isascii() and port_text.isdigit() and 0 < int(port_text[:6]) <= 65535
    if not host or not is_port or len(port_text) > 5 or any(char.isspace() for char in host):
        raise ConfigError(f"{given} is not an address; write host:port, like localhost:9092")
    return host, int(port_text)


def addresses(name: str, value: object) -> tuple[str, ...]:
    """Bootstrap servers; returns a tuple of distinct ``host:port``."""
    if isinstance(value, str) and "@" in value:
        parse_address(value)  # rejects it whole: a password may have a comma
    servers = (
        value.split(",") if isinstance(value, str) else _strings(name, value, "localhost:9092")
    )
    servers = [server.strip() for server in servers if server.strip()]
    if not servers:
        raise ConfigError('bootstrap_servers is empty: use for example "localhost:9092"')
    for server in servers:
        parse_address(server)
    return tuple(dict.fromkeys(servers))


def assignors(name: str, value: object) -> tuple[object, ...]:
    """Names of assignors, or assignors that the user has written; each name once."""
    given = tuple(_sequence(name, value, "cooperative-sticky"))
    if not given:
        raise ConfigError('assignors is empty: use for example assignors=("cooperative-sticky",)')
    names = tuple(map(_assignor_name, given))
    if len(set(names)) < len(names):
        raise ConfigError(f"assignors names one twice: {names}")
    return given


def _assignor_name(given: object) -> str:
    if isinstance(given, str):
        if given not in ASSIGNORS:
            raise ConfigError(f"assignors: {explain_unknown(given, ASSIGNORS, 'assignor')}")
        return given
    name: object = getattr(given, "name", None)
    calls = (getattr(given, call, None) for call in ("assign", "user_data"))
    complete = hasattr(given, "protocols") and all(map(callable, calls))
    if isinstance(given, type) or not isinstance(name, str) or not complete:
        raise ConfigError(
            "assignors takes names, or objects with name, protocols, user_data() and assign() "
            f"(asyncrevoke.assignors.Assignor), not {_describe(given)}"
        )
    if name in ASSIGNORS or not name:
        raise ConfigError(
            f"assignors: your assignor needs a name of its own, not {shown_option(name)}, "
            "because members that offer the same name are expected to assign by the same rule"
        )
    return name


def _sequence(name: str, value: object, example: str) -> Sequence[object]:
    if isinstance(value, str):
        raise ConfigError(f"{name} takes a tuple of names: use {name}=({shown_option(value)},)")
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f'{name} takes names like ("{example}",), not {_describe(value)}')
    return cast("Sequence[object]", value)


def _strings(name: str, value: object, example: str) -> list[str]:
    items = _sequence(name, value, example)
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(f"{name} takes strings, not {_describe(item)}")
    return [cast("str", item) for item in items]


def offset_reset(name: str, value: object) -> object:
    """A reset policy, or a timedelta before now."""
    if isinstance(value, timedelta):
        if value <= timedelta(0):
            raise ConfigError(
                f"{name}={shown_option(value)} is how far to go back from now: use a positive one"
            )
        return value
    if value == "none":
        raise ConfigError(f'use {name}="error": like "none", it raises and keeps the position')
    return choice("earliest", "latest", "error", extra="a timedelta")(name, value)


def time_ago(name: str, value: timedelta) -> timedelta:
    """How long ago a time is."""
    if value < timedelta(0):
        raise ConfigError(f"{name}={shown_option(value)}: how long ago, so not negative")
    return value


def choice(*values: str, extra: str = "") -> Check:
    """One of ``values``; ``extra`` names further values that the caller accepts."""

    def check(name: str, value: object) -> object:
        if isinstance(value, str) and value in values:
            return value
        wanted = " or ".join([*(f'"{choice}"' for choice in values), *([extra] if extra else [])])
        raise ConfigError(f"{name} is {wanted}, not {_describe(value)}")

    return check


def order(name: str, value: object) -> object:
    """The option ``order_by``: a word, or a function of the record."""
    if callable(value):
        check_record_function(name, value, "key", "take what orders records from the record itself")
        return value
    return choice("key", "partition", extra="None or a function of the record")(name, value)


def optional(check: Check) -> Check:
    """None, or a value that ``check`` accepts."""
    return lambda name, value: None if value is None else check(name, value)


def seconds(*, zero: bool = False, most: float = _MOST_SECONDS) -> Check:
    """A duration in seconds, at most ``most``; 0 only if ``zero``."""

    def check(name: str, value: object) -> float:
        if isinstance(value, timedelta):
            raise ConfigError(f"{name} is in seconds: use {name}={value.total_seconds()}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"{name} is in seconds, a number, not {_describe(value)}")
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise ConfigError(f"{name}={value} must be {'at least' if zero else 'more than'} 0 s")
        if value > most:
            raise ConfigError(
                f"{name}={value} is in seconds, at most {most:.0f}: "
                f"if these were milliseconds, use {name}={value / 1000}"
            )
        return float(value)

    return check


def count(*, most: int = _MOST_BYTES, least: int = 1) -> Check:
    """A whole number within bounds."""

    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} is a whole number, not {_describe(value)}")
        if not least <= value <= most:
            raise ConfigError(f"{name}={value} must be between {least} and {most}")
        return value

    return check


def flag(name: str, value: object) -> bool:
    """True or False; 0 and 1 are rejected."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {_describe(value)}")
    return value


def text(name: str, value: object) -> str:
    """A string that is not empty."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a string, not {_describe(value)}")
    if not value:
        raise ConfigError(f"{name} is empty: give it a value, or leave it out")
    return value


def secret(name: str, value: object) -> str:
    """A string that no message may show."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a string, not a {type(value).__name__}")
    return value


def tls_context(name: str, value: object) -> object:
    """An ``ssl.SSLContext``."""
    import ssl

    if not isinstance(value, ssl.SSLContext):
        raise ConfigError(
            f"{name} is an ssl.SSLContext, for example ssl.create_default_context(cafile=...), "
            f"not {_describe(value)}"
        )
    return value


def token_provider(name: str, value: object) -> object:
    """An object that returns OAuth tokens."""
    if isinstance(value, type):
        given = f"the class {value.__name__}"
    elif not callable(getattr(value, "token", None)):
        given = f"an instance of {type(value).__name__}"
    else:
        return value
    raise ConfigError(f"{name} is an instance with `async def token(self) -> str`, not {given}")


def _describe(value: object) -> str:
    return f"{shown_option(value)} ({type(value).__name__})"
