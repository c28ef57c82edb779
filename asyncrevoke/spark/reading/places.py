"""Places in a topic from which or up to which it is read: offsets, times, a group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from asyncrevoke.errors import ConfigError
from asyncrevoke.printable import shown_option
from asyncrevoke.spark.errors import DataLossError

if TYPE_CHECKING:
    from asyncrevoke.model import TopicPartition

# Epoch milliseconds of 2001-09-09, and of the year 9999, which datetime still knows.
_EPOCH_MILLISECONDS = range(10**12, 253_370_764_800_000)


class GroupOffsets(NamedTuple):
    """A place in a topic: the committed offsets of a consumer group."""

    group_id: str


Place: TypeAlias = Literal["earliest", "latest"] | int | datetime | GroupOffsets | Mapping[int, int]
Missing: TypeAlias = Literal["error", "clip"]


def check_place(name: str, place: object) -> None:
    """Raise ConfigError if ``place`` is not a place in a topic."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise ConfigError(
                f"{name}={place.isoformat()} has no time zone, which workers elsewhere may take "
                f"for another moment: use {name}=datetime(..., tzinfo=...)"
            )
        return
    if isinstance(place, GroupOffsets) or place in ("earliest", "latest"):
        return
    offsets, shown = [place], shown_option(place)
    if isinstance(place, Mapping):
        offsets = list(cast("Mapping[object, object]", place).values())
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in offsets):
        raise ConfigError(
            f'{name}={shown}: use "earliest", "latest", an offset, a dictionary of offsets by '
            'partition, a datetime with a time zone, or GroupOffsets("group")'
        )
    if any(cast("int", each) < 0 for each in offsets):
        raise ConfigError(
            f'{name}={shown}: offsets begin at 0; for the ends use "earliest" or "latest"'
        )


def check_start_before_end(start: Place, end: Place) -> None:
    """Raise ConfigError if two offsets or two times are in the wrong order."""
    offsets = isinstance(start, int) and isinstance(end, int) and start > end
    times = isinstance(start, datetime) and isinstance(end, datetime) and start > end
    if offsets or times:
        raise ConfigError(
            f"start={_shown(start)} is after end={_shown(end)}: no record lies between them; "
            "exchange them"
        )


def is_beyond(
    place: Place, name: str, found: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
) -> bool:
    """Whether offsets that were asked for lie beyond the log's end: of an offset for all
    partitions in each of them, of others in one. An end may, unless it may be a time."""
    beyond = [found[tp] > last[tp] for tp in last]
    if isinstance(place, int):
        return all(beyond) and (name == "start" or place in _EPOCH_MILLISECONDS)
    return name == "start" and isinstance(place, (Mapping, GroupOffsets)) and any(beyond)


def check_within_log(
    name: str,
    place: Place,
    found: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> None:
    """Raise ConfigError or DataLossError if :func:`is_beyond` holds for high watermarks."""
    if not is_beyond(place, name, found, last):
        return
    tp = next(tp for tp in sorted(last) if found[tp] > last[tp])
    if isinstance(place, GroupOffsets):
        raise DataLossError(
            f"group {shown_option(place.group_id)} has committed offset {found[tp]} of "
            f"{tp.topic}-{tp.partition}, which ends at offset {last[tp]}: the topic was deleted "
            "and created again, or has lost records; give the offsets to begin at"
        )
    if found[tp] in _EPOCH_MILLISECONDS:
        moment = datetime.fromtimestamp(found[tp] / 1000, UTC)
        advice = f"for a time in epoch milliseconds use {name}={moment.isoformat()}"
    else:
        advice = f'use {name}="latest" to begin with new records'
    raise ConfigError(
        f"{name}={_shown(place)} is an offset, and {tp.topic}-{tp.partition} ends at offset "
        f"{last[tp]}: {advice}"
    )


def _shown(place: Place) -> str:
    return place.isoformat() if isinstance(place, datetime) else shown_option(place)
