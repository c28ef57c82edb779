"""A topic of memory as Spark reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrevoke.audit.topic.batch_headers import BATCHES
from asyncrevoke.journal.format.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from unit.journal.written_journal import JournalledTopic

    from asyncrevoke.audit.comparison import Range


def as_frame(spark: SparkSession, topic: JournalledTopic) -> DataFrame:
    """As Spark's source would give it, null keys and values not excepted."""
    columns = ("topic", "partition", "offset", "timestamp", "key", "value")
    records = [
        {name: getattr(record, name) for name in columns}
        for number, log in topic.logs.items()
        for record in log.records(number)
    ]
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    schema = pa.schema(list(zip(columns, types, strict=True)))
    return spark.createDataFrame(pa.Table.from_pylist(records, schema))


def batches_of(
    topic: JournalledTopic,
) -> Callable[[SparkSession, Sequence[Range]], DataFrame]:
    """As tasks would read them."""

    def batches(spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        rows: list[Any] = []
        topic.batches(ranges, rows.append)
        from asyncrevoke.spark.audits.database import small_frame

        return small_frame(spark, BATCHES, [tuple(r.values()) for b in rows for r in b.to_pylist()])

    return batches
