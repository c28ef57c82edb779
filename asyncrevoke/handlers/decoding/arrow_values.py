"""Handlers that receive and return columns: Arrow batches, or DataFrames of Polars."""

from __future__ import annotations

import asyncio
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import structs

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.message import Message
from asyncrevoke.client.record_parts import SizedRecords
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.columns.poll_columns import PollColumns
    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.decoding.column_decoder import ColumnDecoder

Kind: TypeAlias = Literal["arrow", "polars"]

_KINDS: dict[tuple[str, str], Kind] = {
    ("pyarrow", "RecordBatch"): "arrow",
    ("polars", "DataFrame"): "polars",
}


def columns_kind(annotation: object) -> Kind | None:
    """What a parameter with this annotation receives, if that is columns."""
    if not isinstance(annotation, type):
        return None
    # Classes that are made at run time, as those of Protobuf messages, may have no module.
    return _KINDS.get((str(annotation.__module__).partition(".")[0], annotation.__name__))


@cache
def _poll_columns() -> PollColumns:
    from asyncrevoke.client.columns.poll_columns import PollColumns

    return PollColumns(COLUMNS)


class HandlerColumns:
    """Makes what a handler receives of the records of a batch.

    It has all columns of an Arrow batch; with a ``decoder``, the column ``value`` has structs.
    """

    def __init__(
        self, kind: Kind, decoder: ColumnDecoder | None, *, in_thread: bool = True
    ) -> None:
        self._kind: Kind = kind
        self._decoder = decoder
        self._in_thread = in_thread

    def inline(self) -> HandlerColumns:
        """The same, but values are decoded on the event loop: for tests in virtual time."""
        return HandlerColumns(self._kind, self._decoder, in_thread=False)

    async def of(self, records: Sequence[Record]) -> tuple[Any, dict[int, str]]:
        """An Arrow batch of records of one partition, and why some of its rows do not decode.

        Values are decoded in a thread; if this is cancelled, the thread goes on. Raises what the
        decoder raises, which is not of single values.
        """
        rows, reasons = _with_microseconds(records)
        batch: Any = _poll_columns().whole(rows)
        if self._decoder is None:
            return batch, reasons
        decode = partial(self._decoder.decode, batch.column("value"))
        decoded = await asyncio.to_thread(decode) if self._in_thread else decode()
        at = batch.schema.get_field_index("value")
        return batch.set_column(at, "value", decoded.columns), {**decoded.failures, **reasons}

    def shown(self, batch: Any) -> object:  # noqa: ANN401 - of a package without types
        """The argument of the handler for an Arrow batch."""
        if self._kind == "arrow":
            return cast("object", batch)
        return cast("Any", import_module("polars")).from_arrow(batch)


def _with_microseconds(records: Sequence[Record]) -> tuple[Sequence[Record], dict[int, str]]:
    """The records, with another timestamp for those that a column cannot have, and why."""
    if isinstance(records, SizedRecords):  # decoded to columns already
        return records, {}
    from asyncrevoke.client.columns.record_columns import fits_microseconds, misfit

    reasons = {
        row: misfit(record.timestamp)
        for row, record in enumerate(records)
        if not fits_microseconds(record.timestamp)
    }
    if not reasons:
        return records, reasons
    return [
        structs.replace(record, timestamp=0) if row in reasons else record
        for row, record in enumerate(records)
    ], reasons


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
