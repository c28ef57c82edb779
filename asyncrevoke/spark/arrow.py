"""Applies functions of Arrow batches to DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch


def map_in_arrow(
    frame: DataFrame,
    task: Callable[[Iterable[ArrowRecordBatch]], Iterator[ArrowRecordBatch]],
    schema: str,
) -> DataFrame:
    """Apply ``task`` to the rows of each partition in a Python worker. Lazy."""
    return cast("DataFrame", cast("Any", frame).mapInArrow(task, schema))
