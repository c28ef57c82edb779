"""The views of a journal in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.journal.reading import check_damage
from asyncrevoke.journal.views.definitions import VIEWS
from asyncrevoke.spark.audits.journal import checked_journal

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def journal_views(spark: SparkSession, journal: str | os.PathLike[str] | DataFrame) -> None:
    """Create the temporary views ``journal``, ``ownership``, ``rebalances``, ``handler_durations``
    and ``stalls`` of a journal's folder, or of a DataFrame of its rows. Replaces existing views.

    Reads the journal once to check its files and row numbers, and raises DamagedJournalError if
    they are damaged. Each query then reads the folder or DataFrame as it is at the time of the
    query. Raises ConfigError if the folder has no journal.
    """
    checked = checked_journal(spark, journal)
    check_damage(checked.overview.sessions)
    checked.rows.createOrReplaceTempView("journal")
    run = cast("Callable[[str], DataFrame]", cast("Any", spark).sql)  # half typed
    for name, query in VIEWS.items():
        written = query.replace('"', "`").replace("timestamp(", "timestamp_micros(")
        run(written).createOrReplaceTempView(name)
