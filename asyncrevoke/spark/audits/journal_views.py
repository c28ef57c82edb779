"""The views of a journal in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.journal.views.definitions import VIEWS
from asyncrevoke.spark.audits.journal import journal_frame

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def journal_views(spark: SparkSession, journal: str | os.PathLike[str] | DataFrame) -> None:
    """Create the temporary views ``journal``, ``ownership``, ``rebalances``, ``handler_durations``
    and ``stalls`` of a journal's folder, or of a DataFrame of its rows. Replaces views of before.

    Lazy: a query reads what is there when it runs. Raises ConfigError if the folder has no journal.
    """
    from pyspark.sql import DataFrame

    frame = journal if isinstance(journal, DataFrame) else journal_frame(spark, journal)
    frame.createOrReplaceTempView("journal")
    run = cast("Callable[[str], DataFrame]", cast("Any", spark).sql)  # half typed
    for name, query in VIEWS.items():
        written = query.replace('"', "`").replace("timestamp(", "timestamp_micros(")
        run(written).createOrReplaceTempView(name)
