"""Parses places in topics, of options and of the command line."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.reading.places import (
    LARGEST,
    LARGEST_PARTITION,
    GroupOffsets,
    Place,
    check_place,
)
from asyncrevoke.spark.source.option_values import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_place(name: str, text: str) -> Place:
    """Parse ``earliest``, ``latest``, ``now``, an offset, ``{"0": 17}``, ``{"orders": {"0": 17}}``,
    ``group:NAME``, or a time.

    Times are in ISO 8601; without an offset from UTC they are in this machine's time zone. In JSON,
    a string is a time, -2 the earliest offset and -1 the latest. Raises ConfigError.
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
        place = _time(name, text)
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


def _time(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f'{name}={shown_option(text)}: use "earliest", "latest", an offset, {{"0": 17}}, '
            '"group:NAME", or a time like "2026-11-01T00:00+01:00"'
        ) from error
