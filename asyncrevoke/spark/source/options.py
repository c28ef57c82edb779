"""The options of ``spark.read.format("asyncrevoke")``: strings, as all options of Spark."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.errors import ConfigError
from asyncrevoke.printable import shown_option
from asyncrevoke.spark.connection_options import CONNECTION_OPTIONS, connection_options
from asyncrevoke.spark.hidden_options import HiddenOptions
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.places import GroupOffsets, Place, check_place
from asyncrevoke.spark.reading.range_reader import NO_PROGRESS_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.config.consumer_config import IsolationLevel
    from asyncrevoke.spark.reading.places import Missing

_OURS = (
    "topic", "start", "end", "missing", "include_headers", "include_unreadable",
    "max_offsets_per_trigger", "no_progress_timeout", "ranges", "isolation_level",
)  # fmt: skip
_NAMES = (*_OURS, *CONNECTION_OPTIONS)
# Options of Spark's Kafka connector, in lower case as Spark passes them, and their names here.
_CONNECTORS = {
    "subscribe": "topic",
    "kafka.bootstrap.servers": "bootstrap_servers",
    "startingoffsets": "start",
    "endingoffsets": "end",
    "startingtimestamp": "start",
    "endingtimestamp": "end",
    "startingoffsetsbytimestamp": "start",
    "endingoffsetsbytimestamp": "end",
    "includeheaders": "include_headers",
    "maxoffsetspertrigger": "max_offsets_per_trigger",
    "kafka.isolation.level": "isolation_level",
    "kafka.security.protocol": "security_protocol",
    "kafka.sasl.mechanism": "sasl_mechanism",
}
_REFUSED = {
    "kafka.group.id": "Spark keeps its offsets in the checkpoint and never commits to a group; to "
    'begin at its offsets use start="group:NAME", and to commit offsets for it `asyncrevoke '
    "handover`",
    "failondataloss": 'records that are gone are an error; missing="clip" skips those '
    "before the log's start, and says how many",
    "minpartitions": "one range of a partition is read by one task, in order: leave it out, and "
    "repartition() afterwards where order does not matter",
    "maxrecordsperpartition": "one range of a partition is read by one task, in order: leave it "
    "out, and repartition() afterwards where order does not matter",
    "subscribepattern": "name one topic, and union() several reads",
    "assign": "name the topic, and filter by the column partition",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options. Picklable: tasks get the given strings."""

    given: HiddenOptions
    topic: str
    start: Place
    end: Place
    missing: Missing
    include_headers: bool
    include_unreadable: bool
    max_offsets_per_trigger: int | None
    no_progress_timeout: float
    ranges: tuple[OffsetRange, ...] | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check all options. Raises ConfigError."""
        given = {name.lower(): value for name, value in options.items() if name.lower() != "path"}
        for name in given:
            _check_name(name)
        if "topic" not in given:
            raise ConfigError('which topic? .option("topic", "orders")')
        result = cls(
            given=HiddenOptions(given),
            topic=given["topic"],
            start=to_place("start", given.get("start", "earliest")),
            end=to_place("end", given.get("end", "latest")),
            missing=_missing(given.get("missing", "error")),
            include_headers=_boolean("include_headers", given.get("include_headers", "false")),
            include_unreadable=_boolean(
                "include_unreadable", given.get("include_unreadable", "false")
            ),
            max_offsets_per_trigger=_count(given.get("max_offsets_per_trigger")),
            no_progress_timeout=_seconds(given.get("no_progress_timeout")),
            ranges=_ranges(given.get("ranges"), given["topic"]),
        )
        if result.ranges is not None and (both := given.keys() & {"start", "end"}):
            raise ConfigError(
                f"ranges= says from where to where, and {min(both)}= too: leave one of them out"
            )
        result.config()
        return result

    def check_stream(self) -> None:
        """Raise ConfigError for options that only a table has."""
        given = self.given.reveal()
        if "end" in given:
            raise ConfigError(
                "end= is for tables (spark.read): a stream reads on until it is stopped, or with "
                "trigger(availableNow=True) up to the end that the topic has when it starts"
            )
        if "ranges" in given:
            raise ConfigError(
                "ranges= is for tables (spark.read): a stream begins at start= and keeps its "
                "offsets in the checkpoint"
            )

    def config(self) -> ConsumerConfig:
        """The configuration to connect with. Raises ConfigError; OSError for an unreadable file."""
        given = self.given.reveal()
        options = connection_options(given)
        level = given.get("isolation_level", "read_committed")
        options["isolation_level"] = cast("IsolationLevel", level)
        return ConsumerConfig(**options)


def to_place(name: str, text: str) -> Place:
    """``earliest``, ``latest``, ``now``, an offset, ``{"0": 17}``, ``group:NAME``, or a time.

    Times are in ISO 8601; without an offset from UTC they are in this machine's time zone.
    Raises ConfigError.
    """
    place: object = text
    if text in ("latest", "now"):
        place = "latest"
    elif text.isdecimal():
        place = int(text)
    elif text.startswith("group:") and len(text) > len("group:"):
        place = GroupOffsets(text.removeprefix("group:"))
    elif text.startswith("{"):
        place = _offsets(name, text)
    elif text != "earliest":
        place = _time(name, text)
    check_place(name, place)
    return cast("Place", place)


def _offsets(name: str, text: str) -> object:
    try:
        return {int(number): offset for number, offset in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{name}={shown_option(text)}: as JSON, give the offset of each partition: "
            '{"0": 17, "1": 4}'
        ) from error


def _time(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f'{name}={shown_option(text)}: use "earliest", "latest", an offset, {{"0": 17}}, '
            '"group:NAME", or a time like "2026-11-01T00:00+01:00"'
        ) from error
    return moment if moment.tzinfo is not None else moment.astimezone()


def _check_name(name: str) -> None:
    if name in _NAMES:
        return
    if name in _REFUSED:
        raise ConfigError(f"the source asyncrevoke has no option {name}: {_REFUSED[name]}")
    if name in _CONNECTORS:
        raise ConfigError(f"{name} is of Spark's Kafka connector: here it is {_CONNECTORS[name]}")
    close = difflib.get_close_matches(name.removeprefix("kafka.").replace(".", "_"), _NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_NAMES)}"
    raise ConfigError(f"the source asyncrevoke has no option {shown_option(name)}: {hint}")


def _ranges(text: str | None, topic: str) -> tuple[OffsetRange, ...] | None:
    if text is None:
        return None
    try:
        ranges = tuple(OffsetRange(*each) for each in json.loads(text))
        valid = all(_is_range(each) for each in ranges)
    except (ValueError, TypeError, RecursionError) as error:
        raise _invalid_ranges(text) from error
    if not valid:
        raise _invalid_ranges(text)
    for each in ranges:
        if each.topic != topic:
            raise ConfigError(
                f"ranges= has a range of topic {shown_option(each.topic)}, and the source reads "
                f"topic {shown_option(topic)}: read each topic by itself"
            )
    return ranges


def _is_range(given: OffsetRange) -> bool:
    numbers: list[object] = [*given[1:]]
    return (
        isinstance(cast("object", given.topic), str)
        and all(type(number) is int for number in numbers)
        and given.partition >= 0
        and 0 <= given.start <= given.end
    )


def _invalid_ranges(text: str) -> ConfigError:
    return ConfigError(
        f'ranges={shown_option(text)}: as JSON, [["topic", partition, start, end], ...], '
        "with no end before its start"
    )


def _missing(text: str) -> Missing:
    if text == "clip":
        return "clip"
    if text != "error":
        raise ConfigError(f'missing={shown_option(text)}: use "error" or "clip"')
    return "error"


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={shown_option(text)}: use true or false")
    return text.lower() == "true"


def _count(text: str | None) -> int | None:
    if text is not None and not (text.isdecimal() and int(text)):
        raise ConfigError(
            f"max_offsets_per_trigger={shown_option(text)}: use a whole number of at least 1"
        )
    return None if text is None else int(text)


def _seconds(text: str | None) -> float:
    try:
        seconds = NO_PROGRESS_TIMEOUT if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"no_progress_timeout={shown_option(text)}: use seconds, more than 0")
    return seconds
