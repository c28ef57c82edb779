"""Spark's interfaces of the sink: writers of tables and streams, and their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

# In Spark's notation; void is the type of lit(None).
_TYPES: Final = {
    "key": ("binary", "string", "void"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_KNOWN: Final = (
    "key binary or string, value binary or string, headers array<struct<key:string,value:binary>>, "
    "topic string, partition int, timestamp timestamp"
)


def check_written_columns(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError for columns that cannot be written. ``topic`` is the option."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        given, name = field.dataType.simpleString(), field.name
        if name not in _TYPES:
            raise ConfigError(
                f"the sink asyncrevoke has no column {shown_option(name)}: select() columns of "
                f"{_KNOWN}; for a value of several columns use "
                'to_json(struct("*")).alias("value")'
            )
        if given not in _TYPES[name]:
            raise ConfigError(
                f"the column {name} is {shown_option(given)}: cast it to "
                f"{' or '.join(kind for kind in _TYPES[name] if kind != 'void')}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"the DataFrame has more than one column {name}: select() one")
    if "value" not in names:
        raise ConfigError(f"the DataFrame has no column value: select() columns of {_KNOWN}")
    if topic is None and "topic" not in names:
        raise ConfigError('which topic? .option("topic", "orders"), or a column topic')
    if topic is not None and "topic" in names:
        raise ConfigError(
            f"the option topic={shown_option(topic)} and the column topic are both given: leave "
            "one of them out (Spark's Kafka connector ignores the column)"
        )


@dataclass
class WrittenRows(WriterCommitMessage):
    """All ``rows`` of a task are acknowledged."""

    rows: int


class _RowWriter:
    """The common part of both writers. Raises ConfigError for invalid options and columns."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.of(options)
        check_written_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[ArrowRecordBatch]) -> WrittenRows:
        """Write the rows of a task; called in the task. Raises SinkError."""
        from asyncrevoke.spark.sink.task import write_rows

        context = TaskContext.get()
        number = "?" if context is None else context.partitionId()
        return WrittenRows(
            write_rows(self._options, f"partition {number} of the DataFrame", iterator)
        )


class TableWriter(_RowWriter, DataSourceArrowWriter):
    """Appends the rows of a DataFrame. Raises ConfigError."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema)
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: use .mode("append")')


class StreamWriter(_RowWriter, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches. Raises ConfigError."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema)
        if overwrite:
            raise ConfigError(
                'a topic cannot be overwritten, as outputMode("complete") would: use '
                'outputMode("append"), or write each batch in foreachBatch'
            )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: rows are in their topics when they are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: acknowledged rows stay, and the next attempt writes them again."""
