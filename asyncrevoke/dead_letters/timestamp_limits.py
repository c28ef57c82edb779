"""Which timestamps of records a topic accepts and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncrevoke.dead_letters.errors import DeadLettersError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

_CLEANUP: Final = "cleanup.policy"
_TYPE: Final = "message.timestamp.type"
_RETENTION: Final = "retention.ms"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
# Of brokers before Apache Kafka 3.6 (KIP-937), for both directions.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
TIMESTAMP_OPTIONS: Final = (_CLEANUP, _TYPE, _RETENTION, _BEFORE, _AFTER, _DIFFERENCE)
_LONGEST_NUMBER: Final = 20
_UNLIMITED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimestampLimits:
    """The timestamps that ``topic`` accepts and keeps.

    ``replaces``: the broker sets the timestamp of each record. ``retention`` is in milliseconds,
    None if records stay, whatever their timestamp is. ``before`` and ``after`` are the most
    milliseconds before and after the present time, each with the name of its option.
    ``wall_clock`` returns seconds since the epoch.
    """

    topic: str
    replaces: bool
    retention: int | None
    before: tuple[str, int]
    after: tuple[str, int]
    wall_clock: Callable[[], float]

    @classmethod
    def of(cls, topic: str, settings: Mapping[str, str], wall_clock: Callable[[], float]) -> Self:
        """The limits in the configuration of a topic. Raises DeadLettersError."""
        policies = [policy.strip() for policy in settings.get(_CLEANUP, "delete").split(",")]
        retention = _number(topic, settings, _RETENTION)
        return cls(
            topic,
            settings.get(_TYPE) == "LogAppendTime",
            retention if "delete" in policies and retention >= 0 else None,
            _limit(topic, settings, _BEFORE),
            _limit(topic, settings, _AFTER),
            wall_clock,
        )

    def why_not(self, timestamp: int) -> str | None:
        """Why a record with this timestamp (ms since the epoch) would be rejected, or deleted at
        the next check of retention; None if it would stay."""
        if timestamp < 0:
            return "its original timestamp is unknown"
        if self.replaces:
            return f"{self.topic} replaces timestamps: it has {_TYPE}=LogAppendTime"
        age = int(self.wall_clock() * 1000) - timestamp
        name, most = self.before if age > 0 else self.after
        if abs(age) > most:
            when = "ago" if age > 0 else "ahead"
            return (
                f"its original timestamp is {abs(age)} ms {when}, which {self.topic} does not "
                f"accept ({name}={most})"
            )
        if self.retention is not None and age > self.retention:
            return (
                f"its original timestamp is {age} ms ago, and {self.topic} would delete it at once "
                f"({_RETENTION}={self.retention})"
            )
        return None


def _limit(topic: str, settings: Mapping[str, str], name: str) -> tuple[str, int]:
    for setting in (name, _DIFFERENCE):
        if setting in settings:
            return setting, _number(topic, settings, setting)
    # A broker without these options, as some that are compatible with Kafka.
    return name, _UNLIMITED


def _number(topic: str, settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < _LONGEST_NUMBER:
        return int(text)
    raise DeadLettersError(f"the broker does not report {name} of {topic}")
