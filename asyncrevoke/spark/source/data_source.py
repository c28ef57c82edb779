"""The data source ``format("asyncrevoke")``: reads and writes topics, as tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from asyncrevoke.spark.source.columns import HEADERS, SCHEMA, SCHEMA_ID, UNREADABLE, check_columns
from asyncrevoke.spark.source.excluded_modules import exclude_modules_from_collections
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Register ``format("asyncrevoke")`` with a session. May be called again."""
    spark.dataSource.register(KafkaSource)


class KafkaSource(DataSource):
    """Reads and writes topics, as ``format("asyncrevoke")``.

    :mod:`asyncrevoke.spark.source.options` and :mod:`asyncrevoke.spark.sink.options` have the
    options. A schema that the user sets selects columns; other columns are not built.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "asyncrevoke"

    def schema(self) -> str:
        """All columns; ``headers``, ``unreadable``, ``schema_id`` and ``payload`` only if options
        include them."""
        exclude_modules_from_collections()
        options = SourceOptions.of(self.options)
        included = {
            HEADERS: options.include_headers,
            UNREADABLE: options.include_unreadable,
            SCHEMA_ID: options.include_schema_id,
        }
        return ", ".join([SCHEMA, *(columns for columns, wanted in included.items() if wanted)])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a table."""
        from asyncrevoke.spark.source.table_reader import FilteringTableReader, TableReader

        exclude_modules_from_collections()
        options = SourceOptions.of(self.options)
        options.check_table()
        kind = FilteringTableReader if options.push_filters else TableReader
        return kind(options, check_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Reads a stream."""
        from asyncrevoke.spark.source.stream_reader import StreamReader

        options = SourceOptions.of(self.options)
        options.check_stream()
        return StreamReader(options, check_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes a table; for its options see :mod:`asyncrevoke.spark.sink.options`."""
        from asyncrevoke.spark.sink.writers import TableWriter

        return TableWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Writes the micro-batches of a stream."""
        from asyncrevoke.spark.sink.writers import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
