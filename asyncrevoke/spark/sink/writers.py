"""Spark's interfaces of the sink: the writers of a table and of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.sink.columns import check_written_columns
from asyncrevoke.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from asyncrevoke.spark.arrow import ArrowRecordBatch


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
