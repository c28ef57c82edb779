"""A batch: records of one partition that one call handles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.printable import named_error
from asyncrevoke.client.record_parts import SizedRecords

if TYPE_CHECKING:
    from asyncrevoke.client.producing.exactly_once.finished_records import CallResults

# The most characters of a value's error in the message of a BatchError.
_MOST_TEXT = 200


class BatchError(Exception):
    """A batch handler raises it if some values failed; the records of all others are done.

    ``errors`` maps the index of each failed value, in the list that the handler received, to its
    exception. ``retry`` retries the failed values together; the failure policy of the handler
    applies to each of their records.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        self.errors = dict(errors)
        if not self.errors:
            raise ConfigError("BatchError({}) names no failed value: return instead of raising it")
        first = named_error(self._first, _MOST_TEXT)
        super().__init__(f"{len(self.errors)} values failed, the first with {first}")

    @property
    def _first(self) -> BaseException:
        return next(iter(self.errors.values()))


class Unsent(NamedTuple):
    """A record that has failed with ``error`` and goes to another topic.

    ``trace``: the headers that carry the trace of its last call.
    """

    record: Record
    error: BaseException
    trace: Sequence[tuple[str, bytes | None]] = ()


class HandlerBatch:
    """Records of one partition, in offset order, until each of them is done or abandoned.

    ``records`` wait for a call. ``unsent`` have failed, and wait to be written to the retry topic
    or the dead letter topic. If the last call failed, ``called`` are the records that it received,
    and ``errors`` the exceptions of single records among them. ``offset`` is the last record's. All
    batches have the same ``key``, so that batches of one partition share a lane.
    """

    __slots__ = (
        "called",
        "errors",
        "offset",
        "partition",
        "records",
        "results",
        "topic",
        "tracker_id",
        "unsent",
    )

    key = b""

    def __init__(self, records: Sequence[Record]) -> None:
        last = records[-1]
        self.topic = last.topic
        self.partition = last.partition
        self.offset = last.offset
        self.tracker_id = last.tracker_id
        self.records = records
        self.unsent: list[Unsent] = []
        self.called: Sequence[Record] = ()
        self.errors: dict[Record, BaseException] = {}
        self.results: CallResults | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the records."""
        return TopicPartition(self.topic, self.partition)

    @property
    def unfinished(self) -> Sequence[Record]:
        """All records that are neither done nor abandoned."""
        if not self.unsent:
            return self.records
        return [*(unsent.record for unsent in self.unsent), *self.records]

    def use_objects(self) -> None:
        """Keep rows of columns as objects from now on: those of some rows are told apart."""
        if isinstance(self.records, SizedRecords):
            self.records = list(self.records)
            self.called = self.records[: len(self.called)]

    def start_call(self, count: int) -> Sequence[Record]:
        """Begin a call with the first ``count`` records, and return these."""
        self.called = self.records if count == len(self.records) else self.records[:count]
        self.errors = {}
        return self.called

    def publish_into(self, results: CallResults) -> None:
        """What the next call publishes is written in a transaction with its records."""
        self.results = results

    def call_failed(self, errors: dict[Record, BaseException]) -> None:
        """The call has failed for these records only."""
        self.errors = errors

    def call_succeeded(self) -> None:
        """The call has returned."""
        self.called = ()

    def remove_all(self) -> None:
        """No record needs a further call."""
        self.records = ()

    def remove(self, records: Collection[Record]) -> None:
        """These records need no further call."""
        self.records = [record for record in self.records if record not in records]

    def send_elsewhere(self, unsent: Unsent) -> None:
        """Let this record be written to another topic instead of another call."""
        self.unsent.append(unsent)
        self.remove((unsent.record,))

    def first_unsent_written(self) -> None:
        """The first record of ``unsent`` is written to the other topic."""
        del self.unsent[0]


# One entry of a lane: a worker runs it in one call.
Item: TypeAlias = Record | HandlerBatch


def unfinished_records(item: Item) -> Sequence[Record]:
    """The records of an item that are neither done nor abandoned."""
    return item.unfinished if isinstance(item, HandlerBatch) else [item]


def first_unfinished_offset(item: Item) -> int:
    """The lowest offset of an item's records that are neither done nor abandoned."""
    if not isinstance(item, HandlerBatch):
        return item.offset
    if not item.unsent:
        return item.records[0].offset if item.records else item.offset
    return min(record.offset for record in item.unfinished)


def log_fields(item: Item, handler_name: str) -> dict[str, object]:
    """The fields of a log line about a call: handler, partition and first unfinished offset."""
    return {
        "handler": handler_name,
        "partition": str(item.topic_partition),
        "offset": first_unfinished_offset(item),
    }
