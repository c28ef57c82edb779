"""Places at which reading begins or ends: offsets, times, and committed offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.errors import DataLossError

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition

# Special offsets of single partitions, as in ListOffsets.
EARLIEST = -2
LATEST = -1

LARGEST: Final = 2**63 - 1
"""The largest offset."""

LARGEST_PARTITION: Final = 2**31 - 1
"""The largest number of a partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Milliseconds since the epoch, from 2001-09-09 to the year 9999, the last that datetime has.
_EPOCH_MILLISECONDS = range(10**12, 253_370_764_800_000)


class GroupOffsets(NamedTuple):
    """A place in a topic: the committed offsets of a consumer group."""

    group_id: str


Place: TypeAlias = (
    Literal["earliest", "latest"]
    | int
    | datetime
    | GroupOffsets
    | Mapping[int, int | datetime]
    | Mapping[str, Mapping[int, int | datetime]]
)
Missing: TypeAlias = Literal["error", "clip"]


def check_place(name: str, place: object) -> None:
    """Raise ConfigError if ``place`` is not a place in a topic."""
    if isinstance(place, GroupOffsets) or place in ("earliest", "latest"):
        return
    if not isinstance(place, Mapping):
        _check_one(name, shown_option(place), place, 0)
        return
    by_partition = cast("Mapping[object, object]", place)
    for key, value in by_partition.items():
        if isinstance(key, str) and isinstance(value, Mapping):
            for number, one in cast("Mapping[object, object]", value).items():
                shown = shown_option({key: {number: one}})
                _check_partition(name, shown, number)
                _check_one(name, shown, one, EARLIEST)
        else:
            _check_partition(name, shown_option({key: value}), key)
            _check_one(name, shown_option({key: value}), value, EARLIEST)
    if name == "end" and EARLIEST in _values(by_partition):
        raise ConfigError(
            f"{name}={shown_option(by_partition)}: -2 is the earliest offset, and no record is "
            "before it"
        )


def _check_partition(name: str, shown: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(f"{name}={shown}: the numbers of partitions are ints")
    if not 0 <= number <= LARGEST_PARTITION:
        raise ConfigError(f"{name}={shown}: partitions are 0 to {LARGEST_PARTITION}")


def _check_one(name: str, shown: str, value: object, least: int) -> None:
    """Raise ConfigError if ``value``, for one partition or all, is not a place."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(
                f"{name}={value.isoformat()} has no time zone, so workers elsewhere may read it "
                f"as another time: use {name}=datetime(..., tzinfo=...)"
            )
        if value < _EPOCH:
            raise ConfigError(
                f"{name}={shown} is before 1970, the first time that a record may have: use a "
                'later time, or "earliest"'
            )
    elif not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(
            f'{name}={shown}: use "earliest", "latest", an offset, a datetime with a time zone, '
            "a dictionary of these by partition, or by topic and partition, or "
            'GroupOffsets("group")'
        )
    elif value < least:
        raise ConfigError(
            f"{name}={shown}: offsets begin at 0; for the ends of the log use "
            '"earliest" or "latest", or -2 or -1 for single partitions'
        )
    elif value > LARGEST:
        raise ConfigError(f"{name}={shown}: offsets are at most {LARGEST}")


def _values(place: Mapping[object, object]) -> list[object]:
    found: list[object] = []
    for value in place.values():
        if isinstance(value, Mapping):
            found.extend(cast("Mapping[object, object]", value).values())
        else:
            found.append(value)
    return found


def offsets_by_topic(
    place: Mapping[int, int | datetime] | Mapping[str, Mapping[int, int | datetime]],
    topics: Sequence[str],
    name: str,
) -> Mapping[str, Mapping[int, int | datetime]]:
    """A place by partition, as a place by topic and partition. Raises ConfigError if it names no
    topic and several are read."""
    by_topic: dict[str, Mapping[int, int | datetime]] = {}
    of_one_topic: dict[int, int | datetime] = {}
    for key, value in place.items():
        if isinstance(key, str) and isinstance(value, Mapping):
            by_topic[key] = value
        else:
            of_one_topic[cast("int", key)] = cast("int | datetime", value)
    if by_topic and not of_one_topic:
        return by_topic
    if by_topic or len(topics) != 1:
        raise ConfigError(
            f"{name}={shown_option(place)}: {len(topics)} topics are read: give offsets by topic "
            'and partition, {"orders": {"0": 17}}'
        )
    return {topics[0]: of_one_topic}


def check_start_before_end(start: Place, end: Place) -> None:
    """Raise ConfigError if the start is an offset or a time after the end."""
    if _is_after(start, end):
        raise ConfigError(f"start={_shown(start)} is after end={_shown(end)}: swap them")


def check_order(
    start: Place,
    end: Place,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    missing: Missing = "error",
) -> None:
    """Raise ConfigError if the start is after the end: in one partition if places are given by
    partition, else in all of them.

    The committed offsets of a group may be after a time, and after an offset for all partitions:
    nothing is left to read. With ``missing="clip"``, so may the earliest offset.
    """
    by_partition = isinstance(start, Mapping) or isinstance(end, Mapping)
    after: list[TopicPartition] = []
    for tp in sorted(starts):
        begins, stops = _of_partition(start, tp), _of_partition(end, tp)
        if isinstance(begins, GroupOffsets):
            allowed = not by_partition or isinstance(stops, datetime)
        else:
            allowed = missing == "clip" and begins in ("earliest", EARLIEST)
        # While a transaction is open, offsets are after the "latest" one that can be read.
        if allowed or stops in ("latest", LATEST):
            continue
        if _is_after(begins, stops) or starts[tp] > ends[tp]:
            after.append(tp)
    if after and (by_partition or len(after) == len(starts)):
        tp = after[0]
        raise ConfigError(
            f"start={_shown(_of_partition(start, tp))} is offset {starts[tp]} of {tp}, after "
            f"end={_shown(_of_partition(end, tp))}, which is offset {ends[tp]}: a partition is "
            "read from its start up to its end"
        )


def _is_after(start: Place, end: Place) -> bool:
    offsets = isinstance(start, int) and isinstance(end, int) and start > end >= 0
    times = isinstance(start, datetime) and isinstance(end, datetime) and start > end
    return offsets or times


def _of_partition(place: Place, tp: TopicPartition) -> Place:
    """What a place says of one partition."""
    if not isinstance(place, Mapping):
        return place
    by_partition = cast("Mapping[object, Any]", place)
    of_topic: Any = by_partition.get(tp.topic, by_partition)
    return cast("Place", of_topic[tp.partition])


def is_beyond(
    place: Place,
    name: str,
    found: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    missing: Missing = "error",
) -> bool:
    """Whether requested offsets are beyond the log's end, and must not be.

    An offset for all partitions is beyond if it is so in each of them, other places if they are so
    in one. With ``missing="clip"`` an end may be beyond, unless its number looks like a time in
    milliseconds.
    """
    beyond = [found[tp] > last[tp] for tp in last]
    strict = name == "start" or missing == "error"
    if isinstance(place, int):
        return all(beyond) and (strict or place in _EPOCH_MILLISECONDS)
    return strict and isinstance(place, (Mapping, GroupOffsets)) and any(beyond)


def check_within_log(
    name: str,
    place: Place,
    found: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    missing: Missing = "error",
) -> None:
    """Raise ConfigError or DataLossError if :func:`is_beyond` holds with high watermarks."""
    if not is_beyond(place, name, found, last, missing):
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
    elif name == "end":
        advice = 'use end="latest", or missing="clip" to read the records that exist'
    else:
        advice = f'use {name}="latest" to begin with new records'
    raise ConfigError(
        f"{name}={_shown(_of_partition(place, tp))} is an offset, and {tp} ends at offset "
        f"{last[tp]}: {advice}"
    )


def _shown(place: Place) -> str:
    return place.isoformat() if isinstance(place, datetime) else shown_option(place)
