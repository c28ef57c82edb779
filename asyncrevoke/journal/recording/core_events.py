"""Converts events of the core to rows of the journal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.format.schema import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.client.core.io.effects import Emit


class PartitionChange(NamedTuple):
    """A row about a partition; ``facts`` is JSON."""

    kind: RowKind
    partition: TopicPartition
    offset: int | None = None
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
        case _:
            pass


def _strings(names: object) -> Iterable[str]:
    assert isinstance(names, list)
    return map(str, names)  # pyright: ignore[reportUnknownArgumentType]


def _partition(name: object) -> TopicPartition:
    topic, _, number = str(name).rpartition("-")
    return TopicPartition(topic, int(number))
