"""Selects dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a public field
from typing import TYPE_CHECKING

from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from asyncrevoke.dead_letters.stored_dead_letter import StoredDeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects the dead letters that match each given field; all without fields.

    ``origin_topics`` and ``origin_partitions`` are the places of the original records. ``errors``
    are types of errors, with or without their modules. ``since`` (inclusive) and ``until``
    (exclusive) limit the timestamps of the original records, and have a time zone. Raises
    ConfigError.
    """

    origin_topics: frozenset[str] = frozenset()
    origin_partitions: frozenset[int] = frozenset()
    errors: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        check_topics(tuple(self.origin_topics), "origin_topics")
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None and time.tzinfo is None:
                raise ConfigError(f"{name}={time.isoformat()} has no time zone")
        if any(partition < 0 for partition in self.origin_partitions):
            raise ConfigError("origin_partitions: partitions are numbered from 0 on")

    def takes(self, letter: StoredDeadLetter) -> bool:
        """Whether a dead letter is selected."""
        kind = letter.error_type
        timestamp = letter.origin_timestamp
        return (
            (not self.origin_topics or letter.origin_topic in self.origin_topics)
            and (not self.origin_partitions or letter.origin_partition in self.origin_partitions)
            and (not self.errors or kind in self.errors or kind.rpartition(".")[2] in self.errors)
            and (self.since is None or timestamp >= self.since.timestamp() * 1000)
            and (self.until is None or timestamp < self.until.timestamp() * 1000)
        )
