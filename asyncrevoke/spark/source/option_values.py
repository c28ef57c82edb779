"""Parses option values, which Spark passes as strings, and places of the command line."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.replays.ranges.times import to_time
from asyncrevoke.spark.reading.places import (
    LARGEST,
    LARGEST_PARTITION,
    GroupOffsets,
    Place,
    check_place,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_DURATION = re.compile(r"(\d{1,15})\s*(us|ms|s|m|min|h|d)?")
# Spark's units of time; a number without a unit is milliseconds.
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


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


def to_place(name: str, text: str, now: datetime | None = None) -> Place:
    """Parse ``earliest``, ``latest``, ``now``, an offset, ``{"0": 17}``, ``{"orders": {"0": 17}}``,
    ``group:NAME``, or a time.

    Times are in ISO 8601; without an offset from UTC they are in this machine's time zone. With
    ``now``, durations before it, such as ``1h``, are times too: not in an option of Spark, which is
    parsed again later. In JSON, a string is a time, -2 the earliest offset and -1 the latest.
    Raises ConfigError.
    """
    place: object = text
    if text in ("latest", "now"):
        place = "latest"
    elif text.isdecimal():
        place = _offset(name, text)
    elif text.startswith("group:") and len(text) > len("group:"):
        place = GroupOffsets(text.removeprefix("group:"))
    elif text.startswith("{"):
        place = _by_partition(name, text)
    elif text != "earliest":
        place = _time(name, text) if now is None else _time_of_a_command(name, text, now)
    check_place(name, place)
    return cast("Place", place)


def _offset(name: str, text: str) -> int:
    offset = whole_number(text)
    if offset is None:
        raise ConfigError(f"{name}={shown_option(text)}: offsets are at most {LARGEST}")
    return offset


def _by_partition(name: str, text: str) -> object:
    try:
        given = cast("Mapping[str, object]", json.loads(text))
        if given and all(isinstance(given_item, dict) for given_item in given.values()):
            by_topic = cast("Mapping[str, Mapping[str, object]]", given)
            return {topic: _of_topic(name, offsets) for topic, offsets in by_topic.items()}
        return _of_topic(name, given)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{name}={shown_option(text)}: as JSON, give the offset of each partition: "
            '{"0": 17, "1": 4}, or {"orders": {"0": 17, "1": 4}}'
        ) from error


def _of_topic(name: str, given: Mapping[str, object]) -> dict[int, object]:
    return {
        _partition(number): _time(name, value) if isinstance(value, str) and "-" in value else value
        for number, value in given.items()
    }


def _partition(text: str) -> int:
    number = whole_number(text)
    if number is None or str(number) != text or number > LARGEST_PARTITION:
        raise ValueError(f"{text} is not a partition number")
    return number


def _time_of_a_command(name: str, text: str, now: datetime) -> datetime:
    try:
        return to_time(name, text, now)
    except ConfigError as error:
        raise ConfigError(f'{error}, or earliest, latest, an offset, or {{"0": 17}}') from error


def _time(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f'{name}={shown_option(text)}: use "earliest", "latest", an offset, {{"0": 17}}, '
            '"group:NAME", or a time like "2026-11-01T00:00+01:00"'
        ) from error
