"""Parses option values, which Spark passes as strings."""

from __future__ import annotations

import re

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.reading.places import LARGEST

_DURATION = re.compile(r"(\d{1,15})\s*(us|ms|s|m|min|h|d)?")
# Spark's units of time; a number without a unit is milliseconds.
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false``. Raises ConfigError."""
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={shown_option(text)}: use true or false")
    return text.lower() == "true"


def count(name: str, text: str | None) -> int | None:
    """A whole number from 1 to 2^63-1, None if not given. Raises ConfigError."""
    if text is None:
        return None
    number = whole_number(text)
    if not number:
        raise ConfigError(
            f"{name}={shown_option(text)}: use a whole number of at least 1 and at most {LARGEST}"
        )
    return number


def whole_number(text: str) -> int | None:
    """The number of decimal digits, up to 2^63-1; None for other text."""
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(LARGEST)):
        return None
    return number if (number := int(digits)) <= LARGEST else None


def seconds(name: str, text: str) -> float:
    """Seconds, more than 0. Raises ConfigError."""
    try:
        given = float(text)
    except ValueError:
        given = 0.0
    if not given > 0:
        raise ConfigError(f"{name}={shown_option(text)}: use seconds, more than 0")
    return given


def duration(name: str, text: str) -> float:
    """The seconds of a duration in Spark's notation: ``90s``, ``15m``, ``2h``. Raises
    ConfigError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f'{name}={shown_option(text)}: use a time like "90s", "15m" or "2h"')
    return int(found[1]) * _UNITS[found[2] or "ms"]
