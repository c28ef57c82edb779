"""The offsets of a stream in Spark's checkpoint, and those of its next micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from asyncrevoke.errors import ConfigError
from asyncrevoke.model import TopicPartition
from asyncrevoke.printable import shown_option
from asyncrevoke.spark.errors import DataLossError

if TYPE_CHECKING:
    from asyncrevoke.spark.reading.log_bounds import LogBounds

_TOPIC_ID = "topic_id"
_OFFSETS = "offsets"


class StreamOffsets(NamedTuple):
    """The next record to read of each partition, as in commits of a consumer group.

    ``topic_ids`` has all topics of ``offsets``; an id is None if the checkpoint was written without
    it, or the brokers have none.
    """

    topic_ids: Mapping[str, str | None]
    offsets: Mapping[TopicPartition, int]

    @classmethod
    def from_json(cls, given: object, topic: str | None = None) -> StreamOffsets:
        """``{"orders": {"topic_id": "xtzWWN4bTjitpL3kfd9s5g", "offsets": {"0": 4800}}}``.

        Also read are ``{"orders": {"0": 4800}}``, as Spark's Kafka connector writes it, and for a
        source of one ``topic`` ``{"0": 4800}``. Raises ConfigError.
        """
        topic_ids: dict[str, str | None] = {}
        offsets: dict[TopicPartition, int] = {}
        by_topic = _fields(given)
        if topic is not None and by_topic and not any(
            isinstance(each, dict) for each in by_topic.values()
        ):  # fmt: skip
            by_topic = {topic: by_topic}
        for name, value in by_topic.items():
            topic_ids[name], by_partition = _of_topic(value)
            for number, offset in by_partition.items():
                valid = number.isdecimal() and type(offset) is int and offset >= 0
                if not valid:
                    raise ConfigError(
                        f"the checkpoint has {shown_option({number: offset})} of topic "
                        f"{shown_option(name)}, which is no offset: it is of another source"
                    )
                offsets[TopicPartition(name, int(number))] = cast("int", offset)
        if not topic_ids and given:
            raise _of_another_source(given)
        return cls(topic_ids, offsets)

    def to_json(self) -> dict[str, dict[str, object]]:
        """In the order of topics and partitions: Spark compares texts."""
        found: dict[str, dict[str, object]] = {
            topic: {_TOPIC_ID: self.topic_ids[topic], _OFFSETS: {}}
            for topic in sorted(self.topic_ids)
        }
        for tp, offset in sorted(self.offsets.items()):
            cast("dict[str, int]", found[tp.topic][_OFFSETS])[str(tp.partition)] = offset
        return found

    def without(self, topics: frozenset[str]) -> StreamOffsets:
        """The offsets of other topics than these."""
        return StreamOffsets(
            {name: each for name, each in self.topic_ids.items() if name not in topics},
            {tp: offset for tp, offset in self.offsets.items() if tp.topic not in topics},
        )


def _of_topic(value: object) -> tuple[str | None, Mapping[str, object]]:
    fields = _fields(value)
    if _OFFSETS not in fields:
        return None, fields or {"": value}
    topic_id, offsets = fields.get(_TOPIC_ID), fields[_OFFSETS]
    return topic_id if isinstance(topic_id, str) else None, _fields(offsets) or {"": offsets}


def _of_another_source(given: object) -> ConfigError:
    return ConfigError(f"the checkpoint has {shown_option(given)}: it is of another source")


def _fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


class Loss(NamedTuple):
    """Records that a query has not read and never will, in ``why``. ``topics`` are to be read from
    the beginning of what exists now, or not at all if they do not exist; so are ``partitions``."""

    why: tuple[str, ...]
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]

    def apply(self, offsets: StreamOffsets) -> StreamOffsets:
        """The offsets without those that have no meaning any more."""
        left = offsets.without(self.topics)
        kept = {tp: at for tp, at in left.offsets.items() if tp not in self.partitions}
        return left._replace(offsets=kept)


def find_loss(start: StreamOffsets, log: LogBounds) -> Loss:
    """What a query at ``start`` has lost: topics that were deleted, also if they were created again
    (by their ids), partitions that do not exist any more, and logs that end before its offset."""
    why: list[str] = []
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    for name, topic_id in sorted(start.topic_ids.items()):
        now = log.topic_ids.get(name)
        at = {tp.partition: offset for tp, offset in start.offsets.items() if tp.topic == name}
        if name not in log.topic_ids:
            why.append(f"topic {name} does not exist any more, and the query is at offsets {at}")
            topics.add(name)
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
            why.append(f"{tp} does not exist any more, and the query is at its offset {offset}")
            partitions.add(tp)
        elif log.last[tp] < offset:
            why.append(f"{tp} ends at offset {log.last[tp]}, and the query is at {offset}")
            partitions.add(tp)
    return Loss(tuple(why), frozenset(topics), frozenset(partitions))


def reject(loss: Loss) -> None:
    """Raise DataLossError if anything is lost."""
    if loss.why:
        raise DataLossError(
            f'{"; ".join(loss.why)}: begin with a new checkpoint, or set missing="clip" '
            '(failOnDataLoss="false") to go on from the earliest offset that there is'
        )


def advance(
    start: Mapping[TopicPartition, int], log: LogBounds, most: int | None
) -> dict[TopicPartition, int]:
    """The end of the batch that begins at ``start``: the log's end, or about ``most`` offsets
    later.

    Each partition gets a share in proportion to its lag, and at least one offset if it has any.
    New partitions begin at the log's first offset.
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
    """How many offsets a batch from ``start`` to ``end`` has."""
    return sum(max(0, at - start.get(tp, log.first[tp])) for tp, at in end.items())
