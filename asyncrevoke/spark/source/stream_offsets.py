"""The offsets of a stream in Spark's checkpoint, and those of its next micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.places import LARGEST
from asyncrevoke.spark.source.option_values import whole_number

if TYPE_CHECKING:
    from asyncrevoke.spark.reading.log_bounds import LogBounds
    from asyncrevoke.spark.reading.offsets import OffsetRange
    from asyncrevoke.spark.reading.topic_selection import TopicSelection

FIRST_OF_NEW_PARTITION: Final = 0
"""Where the log of a partition begins when it is created."""
_TOPIC_ID = "topic_id"
_OFFSETS = "offsets"
_ANOTHER = "another source wrote it; use the checkpoint of this query, or begin with a new one"


class StreamOffsets(NamedTuple):
    """The next record to read of each partition, as in commits of a consumer group.

    ``topic_ids`` has all topics of ``offsets``. An id is None if the checkpoint has none, or the
    broker has none.
    """

    topic_ids: Mapping[str, str | None]
    offsets: Mapping[TopicPartition, int]

    @classmethod
    def from_json(cls, given: object, topic: str | None = None) -> StreamOffsets:
        """Parse ``{"orders": {"topic_id": "xtzWWN4bTjitpL3kfd9s5g", "offsets": {"0": 4800}}}``.

        Also parses ``{"orders": {"0": 4800}}``, which Spark's Kafka connector writes, and with
        ``topic`` also ``{"0": 4800}``. Raises ConfigError.
        """
        topic_ids: dict[str, str | None] = {}
        offsets: dict[TopicPartition, int] = {}
        by_topic = _fields(given)
        if topic is not None and by_topic and not any(
            isinstance(offsets, dict) for offsets in by_topic.values()
        ):  # fmt: skip
            by_topic = {topic: by_topic}
        for name, value in by_topic.items():
            topic_ids[name], by_partition = _of_topic(name, value)
            for number, offset in by_partition.items():
                partition = whole_number(number)
                valid = type(offset) is int and 0 <= offset <= LARGEST
                if partition is None or not valid:
                    raise ConfigError(
                        f"the checkpoint has {shown_option({number: offset})} of topic "
                        f"{shown_option(name)}, which is not an offset: {_ANOTHER}"
                    )
                offsets[TopicPartition(name, partition)] = cast("int", offset)
        if not topic_ids and given:
            raise _of_another_source(given)
        return cls(topic_ids, offsets)

    def to_json(self) -> dict[str, dict[str, object]]:
        """In the order of topics and partitions, because Spark compares the JSON text."""
        found: dict[str, dict[str, object]] = {
            topic: {_TOPIC_ID: self.topic_ids[topic], _OFFSETS: {}}
            for topic in sorted(self.topic_ids)
        }
        for tp, offset in sorted(self.offsets.items()):
            cast("dict[str, int]", found[tp.topic][_OFFSETS])[str(tp.partition)] = offset
        return found

    def without(self, topics: frozenset[str]) -> StreamOffsets:
        """The offsets of all topics but these."""
        return StreamOffsets(
            {name: topic_id for name, topic_id in self.topic_ids.items() if name not in topics},
            {tp: offset for tp, offset in self.offsets.items() if tp.topic not in topics},
        )


def _of_topic(name: str, value: object) -> tuple[str | None, Mapping[str, object]]:
    fields = _fields(value)
    if _OFFSETS not in fields:
        return None, fields or {"": value}
    unknown = sorted(fields.keys() - {_TOPIC_ID, _OFFSETS})
    topic_id, offsets = fields.get(_TOPIC_ID), fields[_OFFSETS]
    if unknown or not isinstance(topic_id, str | None):
        field = unknown[0] if unknown else _TOPIC_ID
        raise ConfigError(
            f"the checkpoint has {shown_option({field: fields[field]})} of topic "
            f"{shown_option(name)}, which this version does not know: update asyncrevoke to the "
            "version that wrote it, or begin with a new checkpoint"
        )
    return topic_id, _fields(offsets) or {"": offsets}


def _of_another_source(given: object) -> ConfigError:
    return ConfigError(f"the checkpoint has {shown_option(given)}: {_ANOTHER}")


def _fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


class Loss(NamedTuple):
    """Records that a query has not read and can never read; ``why`` describes them. ``topics`` and
    ``partitions`` must be read again from the beginning, if they exist.

    ``unselected`` describes topics and partitions that exist and are no longer selected; they are
    in ``topics`` and ``partitions``, too.
    """

    why: tuple[str, ...]
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]
    unselected: tuple[str, ...] = ()

    def apply(self, offsets: StreamOffsets) -> StreamOffsets:
        """The offsets without those of lost topics and partitions."""
        left = offsets.without(self.topics)
        kept = {tp: at for tp, at in left.offsets.items() if tp not in self.partitions}
        return left._replace(offsets=kept)


def find_loss(
    start: StreamOffsets, log: LogBounds, selection: TopicSelection | None = None
) -> Loss:
    """The records that a query at ``start`` has lost: topics that were deleted, and perhaps created
    again (by their ids), partitions that were deleted, and logs that end before the query's
    offset; and with ``selection``, topics and partitions that it does not select."""
    why: list[str] = []
    unselected: list[str] = []
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    by_topic: dict[str, dict[int, int]] = {name: {} for name in start.topic_ids}
    for tp, offset in start.offsets.items():
        by_topic[tp.topic][tp.partition] = offset
    for name, topic_id in sorted(start.topic_ids.items()):
        now, at = log.topic_ids.get(name), by_topic[name]
        if name not in log.topic_ids:
            topics.add(name)
            if selection is not None and not selection.selects_any_of(name):
                unselected.append(f"topic {name}, whose checkpoint is at offsets {at}")
            else:
                why.append(f"topic {name} was deleted, and the query is at offsets {at}")
        elif topic_id is not None and now is not None and topic_id != now:
            why.append(
                f"topic {name} was deleted and created again (its id was {topic_id}, and is "
                f"{now}), and the query is at offsets {at} of the deleted topic"
            )
            topics.add(name)
    for tp, offset in sorted(start.offsets.items()):
        if tp.topic in topics:
            continue
        if tp not in log.last:
            partitions.add(tp)
            if selection is not None and not selection.selects(tp):
                unselected.append(f"{tp}, whose checkpoint is at offset {offset}")
            else:
                why.append(f"{tp} was deleted, and the query is at its offset {offset}")
        elif log.last[tp] < offset:
            why.append(f"{tp} ends at offset {log.last[tp]}, and the query is at {offset}")
            partitions.add(tp)
    return Loss(tuple(why), frozenset(topics), frozenset(partitions), tuple(unselected))


def check_no_loss(loss: Loss) -> None:
    """Raise DataLossError if anything is lost."""
    if loss.why:
        raise DataLossError(
            f'{"; ".join(loss.why)}: begin with a new checkpoint, or set missing="clip" '
            '(failOnDataLoss="false") to continue at the earliest offset'
        )
    if loss.unselected:
        raise DataLossError(
            f"the options no longer select {'; '.join(loss.unselected)}: select it again, begin "
            'with a new checkpoint, or set missing="clip" (failOnDataLoss="false") to continue '
            "without it"
        )


def check_new_partitions(start: StreamOffsets, ranges: Iterable[OffsetRange]) -> None:
    """Raise DataLossError if retention has removed records of a partition that a query at ``start``
    has not read before."""
    cut = [
        offset_range
        for offset_range in ranges
        if offset_range.missing and offset_range.topic_partition not in start.offsets
    ]
    if cut:
        begins = "; ".join(
            f"{cut_range.topic_partition} is new to the query and begins at offset"
            f" {cut_range.start} instead of {FIRST_OF_NEW_PARTITION}"
            for cut_range in cut
        )
        raise DataLossError(
            f"{begins}: retention has removed the records before; set "
            'missing="clip" (failOnDataLoss="false") to read the remaining records'
        )


def advance(
    start: Mapping[TopicPartition, int], log: LogBounds, most: int | None
) -> dict[TopicPartition, int]:
    """The end of the batch that begins at ``start``: the log's end, or about ``most`` offsets after
    it.

    Each partition gets offsets in proportion to its lag, and at least one if it has any. New
    partitions begin at the first offset of their log.
    """
    begins = {tp: start.get(tp, log.first[tp]) for tp in log.last}
    waiting = {tp: max(0, log.last[tp] - begins[tp]) for tp in log.last}
    total = sum(waiting.values())
    if most is None or total <= most:
        shares = waiting
    else:
        shares = {
            tp: min(size, max(1, size * most // total)) if size else 0
            for tp, size in waiting.items()
        }
    return {tp: begins[tp] + shares[tp] for tp in log.last}


def count_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], log: LogBounds
) -> int:
    """The number of offsets of a batch from ``start`` to ``end``."""
    return sum(max(0, at - start.get(tp, log.first[tp])) for tp, at in end.items())
