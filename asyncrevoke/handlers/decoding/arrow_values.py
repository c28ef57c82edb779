"""Handlers that receive and return columns: Arrow batches, or DataFrames of Polars."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.message import Message
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.columns.poll_columns import PollColumns
    from asyncrevoke.client.model import Record

Kind: TypeAlias = Literal["arrow", "polars"]

_KINDS: dict[tuple[str, str], Kind] = {
    ("pyarrow", "RecordBatch"): "arrow",
    ("polars", "DataFrame"): "polars",
}


def columns_kind(annotation: object) -> Kind | None:
    """What a parameter with this annotation receives, if that is columns."""
    if not isinstance(annotation, type):
        return None
    return _KINDS.get((annotation.__module__.partition(".")[0], annotation.__name__))


@cache
def _poll_columns() -> PollColumns:
    from asyncrevoke.client.columns.poll_columns import PollColumns

    return PollColumns(COLUMNS)


def columns_of(records: Sequence[Record], kind: Kind) -> Any:  # noqa: ANN401 - of a package
    """The records of one partition, with all columns of an Arrow batch."""
    batch: Any = _poll_columns().whole(records)
    if kind == "arrow":
        return batch
    from importlib import import_module

    return cast("Any", import_module("polars")).from_arrow(batch)


def check_row(record: Record) -> Record:
    """A decoder that returns the record. Raises ValueError for one that columns cannot have."""
    from asyncrevoke.client.columns.record_columns import fits_microseconds, misfit

    if not fits_microseconds(record.timestamp):
        raise ValueError(misfit(record.timestamp))
    return record


def messages_of(result: object, topic: str) -> list[Message] | None:
    """A message for each row of a result in columns; None for any other result.

    Columns ``key``, ``value`` and ``headers`` are published, others are not. Raises PublishError.
    """
    kind = columns_kind(type(result))
    if kind is None:
        return None
    batch: Any = result
    if kind == "polars":
        batch = batch.to_arrow()
    names: list[str] = batch.schema.names
    if "value" not in names:
        raise PublishError(
            topic, f"the columns {names} of a result have no 'value': rename the one to publish"
        )
    values: list[Any] = batch.column("value").to_pylist()
    for value in values:
        if not isinstance(value, (bytes, str, type(None))):
            raise PublishError(topic, "the column 'value' of a result is neither binary nor text")
    found = [Message(value) for value in values]
    if "key" in names:
        for message, key in zip(found, batch.column("key").to_pylist(), strict=True):
            message.key = key
    if "headers" in names:
        for message, headers in zip(found, batch.column("headers").to_pylist(), strict=True):
            message.headers = [(each["key"], each["value"]) for each in headers or ()]
    return found
