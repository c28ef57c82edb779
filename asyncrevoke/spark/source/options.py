"""The options of ``spark.read.format("asyncrevoke")``. Spark passes all options as strings."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.connection_options import (
    CONNECTION,
    HiddenOptions,
    boolean,
    connection_config,
)
from asyncrevoke.spark.reading.offsets import NO_PROGRESS_TIMEOUT, OffsetRange
from asyncrevoke.spark.reading.range_splits import RangeSplits
from asyncrevoke.spark.reading.topic_selection import TopicSelection
from asyncrevoke.spark.source.connector_options import CONNECTOR_NAMES, without_connector_names
from asyncrevoke.spark.source.option_values import count, duration, seconds, to_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.spark.reading.places import Missing, Place

_TOPICS = ("topic", "subscribe_pattern", "assign")
_OF_STREAMS = (
    "max_offsets_per_trigger", "min_offsets_per_trigger", "max_trigger_delay",
    "min_offsets_per_task",
)  # fmt: skip
_SPLITTING = RangeSplits._fields
_OURS = (
    *_TOPICS, "start", "end", "missing", "include_headers", "include_unreadable",
    "include_schema_id", *_OF_STREAMS, *_SPLITTING,
    "no_progress_timeout", "ranges", "push_filters",
)  # fmt: skip
_NAMES = (*_OURS, *CONNECTION)
# Seconds; the default of Spark's Kafka connector.
_MAX_TRIGGER_DELAY = 15 * 60.0
# Names of Java's options are alike: kafka.client.rack is not a misspelled kafka.client.id.
_CLOSE_TO_JAVA = 0.9


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options. Picklable: tasks get the given strings."""

    given: HiddenOptions
    topics: TopicSelection
    start: Place
    end: Place
    missing: Missing
    include_headers: bool
    include_unreadable: bool
    include_schema_id: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    min_offsets_per_task: int | None
    splits: RangeSplits
    no_progress_timeout: float
    ranges: tuple[OffsetRange, ...] | None
    push_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check all options. Raises ConfigError."""
        given = without_connector_names(
            {name.lower(): value for name, value in options.items() if name.lower() != "path"}
        )
        for name in given:
            _check_name(name)
        topics = _topics(given)
        result = cls(
            given=HiddenOptions(given),
            topics=topics,
            start=to_place("start", given.get("start", "earliest")),
            end=to_place("end", given.get("end", "latest")),
            missing=_missing(given.get("missing", "error")),
            include_headers=boolean("include_headers", given.get("include_headers", "false")),
            include_unreadable=boolean(
                "include_unreadable", given.get("include_unreadable", "false")
            ),
            include_schema_id=boolean("include_schema_id", given.get("include_schema_id", "false")),
            max_offsets_per_trigger=count(_OF_STREAMS[0], given.get(_OF_STREAMS[0])),
            min_offsets_per_trigger=count(_OF_STREAMS[1], given.get(_OF_STREAMS[1])),
            max_trigger_delay=duration(_OF_STREAMS[2], given[_OF_STREAMS[2]])
            if _OF_STREAMS[2] in given
            else _MAX_TRIGGER_DELAY,
            min_offsets_per_task=count(_OF_STREAMS[3], given.get(_OF_STREAMS[3])),
            splits=RangeSplits(*(count(name, given.get(name)) for name in _SPLITTING)),
            no_progress_timeout=seconds(
                "no_progress_timeout", given.get("no_progress_timeout", str(NO_PROGRESS_TIMEOUT))
            ),
            ranges=_ranges(given.get("ranges"), topics),
            push_filters=boolean("push_filters", given.get("push_filters", "false")),
        )
        result._check_together()
        return result

    @property
    def topic(self) -> str:
        """The only topic. Raises ConfigError if there may be others."""
        if len(self.topics.names) != 1 or self.topics.partitions is not None:
            raise ConfigError('give one topic here: .option("topic", "orders")')
        return self.topics.names[0]

    def _check_together(self) -> None:
        if self.ranges is not None and (both := self.given.reveal().keys() & {"start", "end"}):
            raise ConfigError(
                f"ranges= and {min(both)}= both set where reading begins or ends: leave one out"
            )
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"min_offsets_per_trigger={least} is more than max_offsets_per_trigger={most}: "
                "swap them"
            )
        if self.splits.given and self.min_offsets_per_task is not None:
            raise ConfigError(
                f"{self.splits.given[0]}= splits a partition between tasks, and "
                "min_offsets_per_task= lets partitions share a task: leave one out"
            )
        self.splits.check()
        self.config()

    def check_stream(self) -> None:
        """Raise ConfigError for options that only tables have, and for a delay of nothing."""
        given = self.given.reveal()
        if _OF_STREAMS[2] in given and self.min_offsets_per_trigger is None:
            raise ConfigError(
                "max_trigger_delay= ends the wait for min_offsets_per_trigger=, which is not "
                "given: add it, or leave max_trigger_delay= out"
            )
        if "end" in given:
            raise ConfigError(
                "end= is for tables (spark.read): a stream reads until it is stopped, or with "
                "trigger(availableNow=True) up to the topic's end at the start of the query"
            )
        if "ranges" in given:
            raise ConfigError(
                "ranges= is for tables (spark.read): a stream begins at start= and keeps its "
                "offsets in the checkpoint"
            )
        if self.push_filters:
            raise ConfigError(
                "push_filters= is for tables (spark.read): Spark passes no filters to the source "
                "of a stream; select partitions with assign="
            )

    def check_table(self) -> None:
        """Raise ConfigError for options that only streams have, and for places between which a
        table has no record."""
        given = self.given.reveal()
        if of_stream := [name for name in _OF_STREAMS if name in given]:
            raise ConfigError(
                f"{of_stream[0]}= is for streams (spark.readStream): a table has one task for each "
                "partition, and is read from start= to end="
            )
        if self.start == "latest":
            raise ConfigError(
                'start="latest" is for streams (spark.readStream): no record of a table is after '
                "the latest offset"
            )
        if self.end == "earliest":
            raise ConfigError('end="earliest": no record is before the earliest offset')

    def config(self) -> ConsumerConfig:
        """The configuration for connecting. Raises ConfigError."""
        return connection_config(self.given.reveal())


def _check_name(name: str) -> None:
    if name in _NAMES:
        return
    of_java = name.startswith("kafka.")
    close = difflib.get_close_matches(
        name, CONNECTOR_NAMES if of_java else _NAMES, n=1, cutoff=_CLOSE_TO_JAVA if of_java else 0.6
    )
    if close:
        hint = f"did you mean {close[0]}?"
    elif of_java:
        hint = "leave it out: it configures Kafka's Java client, which this source does not use"
    else:
        hint = f"its options are {', '.join(_NAMES)}"
    raise ConfigError(f"the source asyncrevoke has no option {shown_option(name)}: {hint}")


def _topics(given: Mapping[str, str]) -> TopicSelection:
    chosen = [name for name in _TOPICS if name in given]
    if not chosen:
        raise ConfigError('which topic? .option("topic", "orders")')
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} all select topics: leave all but one out")
    if "topic" in given:
        names = tuple(dict.fromkeys(name.strip() for name in given["topic"].split(",")))
        if not all(names):
            raise ConfigError(f'topic={shown_option(given["topic"])}: use "orders", or "a,b"')
        return TopicSelection(names)
    if "assign" in given:
        partitions = _assigned(given["assign"])
        return TopicSelection(tuple(sorted(partitions)), partitions=partitions)
    pattern = given["subscribe_pattern"]
    if not pattern:
        raise ConfigError('subscribe_pattern is empty and selects no topic: use "orders-.*"')
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"subscribe_pattern={shown_option(pattern)} is not a valid regular expression of "
            f"Python: {error}"
        ) from error
    return TopicSelection(pattern=pattern)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        given = cast("dict[str, list[object]]", json.loads(text))
        found = {topic: tuple(numbers) for topic, numbers in given.items()}
        valid = all(found.values()) and all(
            type(number) is int and number >= 0
            for candidate in found.values()
            for number in candidate
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        found, valid = {}, False
    if not valid or not found:
        raise ConfigError(
            f"assign={shown_option(text)}: as JSON, give the partitions of each topic: "
            '{"orders": [0, 1]}'
        )
    return cast("dict[str, tuple[int, ...]]", found)


def _ranges(text: str | None, topics: TopicSelection) -> tuple[OffsetRange, ...] | None:
    if text is None:
        return None
    if topics.pattern is not None or topics.partitions is not None:
        raise ConfigError("ranges= selects partitions: select the topics with topic=")
    try:
        ranges = tuple(_range(*load) for load in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f'ranges={shown_option(text)}: as JSON, [["topic", partition, start, end], ...], '
            "each start at most its end; a topic id may follow"
        ) from error
    for offset_range in ranges:
        if offset_range.topic not in topics.names:
            raise ConfigError(
                f"ranges= has a range of topic {shown_option(offset_range.topic)}, and the source"
                f" reads {topics}: add the topic there"
            )
    return ranges


def _range(
    topic: object, partition: object, start: object, end: object, topic_id: object = None
) -> OffsetRange:
    """Raises ValueError."""
    if (
        isinstance(topic, str)
        and type(partition) is int
        and type(start) is int
        and type(end) is int
        and isinstance(topic_id, str | None)
        and partition >= 0
        and 0 <= start <= end
    ):
        return OffsetRange(topic, partition, start, end, topic_id=topic_id)
    raise ValueError("no range of offsets")


def _missing(text: str) -> Missing:
    if text == "clip":
        return "clip"
    if text != "error":
        raise ConfigError(f'missing={shown_option(text)}: use "error" or "clip"')
    return "error"
