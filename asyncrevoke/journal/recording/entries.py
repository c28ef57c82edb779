"""Entries of a journal that wait to be encoded as rows."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.runtime.hooks.recorders import WrittenResult
from asyncrevoke.journal.format.frames import Frame
from asyncrevoke.journal.format.schema import CallOutcome, RowKind

if TYPE_CHECKING:
    from collections import deque

    from asyncrevoke.client.core.io.effects import Emit


class Attempts(NamedTuple):
    """Attempts that ended together. ``started`` is one time for all, or one for each."""

    records: Sequence[Record]
    started: int | Sequence[int]
    at: int
    outcome: CallOutcome = CallOutcome.OK
    attempt: int | None = 1
    error: BaseException | None = None


class Starts(NamedTuple):
    """Records whose handlers are about to be called."""

    records: Sequence[Record]
    at: int


class LoopTurn(NamedTuple):
    """Attempts that ended in one event loop iteration. ``started`` is one time for all, or one for
    each."""

    rows: int
    started: int | Sequence[int]
    at: int


class Packed(NamedTuple):
    """Successful first attempts of one topic, as columns in the form of the log. ``key_hashes`` is
    empty if all keys are null or there are no hashes; ``record_hashes`` is empty if there are no
    hashes."""

    rows: int
    topic: str
    turns: Sequence[LoopTurn]
    partitions: array[int]
    offsets: array[int]
    key_hashes: bytes
    record_hashes: bytes


class Fetched(NamedTuple):
    """A record batch that a broker returned, and the time."""

    topic: str
    partition: int
    first: int
    last: int
    records: int
    checksum: int
    came: int


class ReceivedBatches(NamedTuple):
    """Received batches that are written together."""

    batches: Sequence[Fetched]
    at: int


class Results(NamedTuple):
    """Results in one transaction, which has this number in its session."""

    results: Sequence[WrittenResult]
    at: int
    number: int


class Fact(NamedTuple):
    """Any other single row. ``started_us`` is when a commit or an acknowledgement was sent."""

    kind: RowKind
    at: int
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    member: str | None = None
    generation: int | None = None
    outcome: CallOutcome | None = None
    facts: str | None = None
    started_us: int | None = None
    error_type: str | None = None
    last_offset: int | None = None
    records: int | None = None
    checksum: int | None = None


Entry: TypeAlias = Attempts | Starts | Packed | ReceivedBatches | Results | Fact


class EncodedRows(NamedTuple):
    """Rows that are encoded as frames already."""

    frames: Sequence[Frame]


# Entries with the numbers of their first rows, in order. Only the event loop's thread appends.
Queue: TypeAlias = "deque[tuple[int, Entry | EncodedRows]]"


@dataclass(slots=True, eq=False)
class WrittenCount:
    """How many items of the list ``done`` were written."""

    done: list[Record]
    count: int = 0


class PartitionChange(NamedTuple):
    """A row about a partition; ``facts`` is JSON."""

    kind: RowKind
    partition: TopicPartition
    offset: int | None = None
    last_offset: int | None = None
    facts: str | None = None


def changes_of(event: Emit) -> Iterator[PartitionChange]:
    """The rows of one event. Most events have none."""
    fields = event.fields
    match event.event:
        case log_events.REVOCATION_REQUESTED.name:
            for name in _strings(fields["partitions"]):
                yield PartitionChange(RowKind.REVOKE_BEGIN, _partition(name))
        case log_events.REVOCATION_WITHDRAWN.name:
            yield PartitionChange(RowKind.WITHDRAWN, _partition(fields["partition"]))
        case log_events.POSITION_SET.name:
            offset = fields["offset"]
            assert isinstance(offset, int)
            yield PartitionChange(RowKind.RESET, _partition(fields["partition"]), offset)
        case log_events.MAP_APPLIED.name:
            facts = json.dumps({"runs": fields["runs"]})
            yield PartitionChange(RowKind.SKIPPED, _partition(fields["partition"]), facts=facts)
        case log_events.SHARE_LOCKS_LOST.name:
            yield from _lost_locks(fields)
        case _:
            pass


def _lost_locks(fields: Mapping[str, object]) -> Iterator[PartitionChange]:
    partition = TopicPartition(str(fields["topic"]), cast("int", fields["partition"]))
    facts = json.dumps({"reason": fields["reason"]})
    for first, last in cast("list[tuple[int, int]]", fields["offsets"]):
        yield PartitionChange(RowKind.LOCK_LOST, partition, first, last, facts)


def _strings(names: object) -> Iterable[str]:
    assert isinstance(names, list)
    return map(str, names)  # pyright: ignore[reportUnknownArgumentType]


def _partition(name: object) -> TopicPartition:
    topic, _, number = str(name).rpartition("-")
    return TopicPartition(topic, int(number))
