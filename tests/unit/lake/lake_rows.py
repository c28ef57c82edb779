"""Rows and files for tests of lakes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrevoke import TopicPartition
from asyncrevoke.cli.sink.store import Closed

if TYPE_CHECKING:
    from asyncrevoke.cli.sink.store import Store

COLUMNS = ("value", "partition", "offset")
PARTITION = TopicPartition("orders", 3)


def rows(first: int, end: int, size: int = 5, partition: int = 3) -> Any:
    """A batch with these offsets."""
    pa: Any = import_module("pyarrow")
    count = end - first
    columns = {
        "value": pa.array([b"v" * size] * count, pa.binary()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(first, end), pa.int64()),
    }
    return pa.record_batch(columns)


def closed(store: Store, first: int, end: int, partition: TopicPartition = PARTITION) -> Closed:
    """A file with all its rows, that is not published."""
    file = store.create(partition, first)
    file.write([rows(first, end, partition=partition.partition)])
    size = file.finish({"asyncrevoke.first": str(first), "asyncrevoke.next": str(end)})
    return Closed(partition, first, end, end - first, size, file)
