"""Records of one partition that one call handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.errors import ConfigError
from asyncrevoke.model import Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class BatchError(Exception):
    """Raise it from a batch's handler: some of its values failed, the others are done.

    ``errors`` has the exception of each failed value by its index in the list that the handler was
    called with. Those form the next attempt, or go where failed records go.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        self.errors = dict(errors)
        if not self.errors:
            raise ConfigError("BatchError({}) names no failed value: return instead of raising it")
        super().__init__(f"{len(self.errors)} values failed, the first with {self._first!r}")

    @property
    def _first(self) -> BaseException:
        return next(iter(self.errors.values()))


class Batch:
    """``records`` are those that are not done, in offset order; ``offset`` is the last one's.

    ``letters`` of it have failed, and go to the dead letter topic or the retry topic. A batch has a
    key, as whatever lanes hold has one: batches of a partition share a lane.
    """

    __slots__ = (
        "called",
        "errors",
        "letters",
        "offset",
        "partition",
        "records",
        "topic",
        "tracker_id",
    )

    key = b""

    def __init__(self, records: list[Record]) -> None:
        last = records[-1]
        self.topic = last.topic
        self.partition = last.partition
        self.offset = last.offset
        self.tracker_id = last.tracker_id
        self.records = records
        self.letters: list[tuple[Record, BaseException]] = []
        # What the last call was made with, if it has failed, and what it said of single records.
        self.called: list[Record] = []
        self.errors: dict[Record, BaseException] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that its records were read from."""
        return TopicPartition(self.topic, self.partition)

    @property
    def undone(self) -> list[Record]:
        """All that is neither done nor given up."""
        return [*(record for record, _ in self.letters), *self.records]


# What lanes hold, and workers run.
Item: TypeAlias = Record | Batch


def records_of(item: Item) -> list[Record]:
    """The records of an item that are not done."""
    return item.undone if isinstance(item, Batch) else [item]


def first_offset(item: Item) -> int:
    """The lowest offset of an item that is not done."""
    return min((record.offset for record in records_of(item)), default=item.offset)
