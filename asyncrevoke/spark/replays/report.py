"""The report of a replay, which Spark counts from its result rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from asyncrevoke.spark.reading.offsets import OffsetRange

_PERCENTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The results of a replay.

    ``outcomes`` counts rows by outcome, ``errors`` failed rows by the type of their error.
    ``latency`` has the percentiles (0.5, 0.9, 0.99, 1.0) of the last call's duration in seconds;
    ``histogram`` counts calls by the upper bound of their duration, in seconds. ``seconds`` is the
    duration of this call of ``replay``. If ``resumed`` is true, all other numbers include the rows
    of earlier calls with the same ``run_id``. ``results`` is the folder of the rows.
    """

    run_id: str
    results: str
    ranges: tuple[OffsetRange, ...]
    records: int
    outcomes: Mapping[str, int]
    errors: Mapping[str, int]
    latency: Mapping[float, float]
    histogram: Mapping[float, int]
    seconds: float
    resumed: bool

    @property
    def failed(self) -> int:
        """The number of rows whose outcome is ``"error"``."""
        return self.outcomes.get("error", 0)


def read_report(
    spark: SparkSession,
    run_id: str,
    results: str,
    ranges: Sequence[OffsetRange],
    seconds: float,
    *,
    resumed: bool,
) -> ReplayReport:
    """Count the rows of a run."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    outcomes: dict[str, int] = {}
    errors: dict[str, int] = {}
    latency: dict[float, float] = {}
    histogram: dict[float, int] = {}
    try:
        rows = spark.read.parquet(f"{results}/run_id={run_id}")
        took = rows.selectExpr(
            "outcome",
            "error_type",
            "finished_us - started_us AS took",
            # Four buckets for each doubling of the duration.
            "CAST(ceil(4 * log2(greatest(1, finished_us - started_us))) AS INT) AS bucket",
        )
        for row in took.groupBy("outcome", "error_type").count().collect():
            outcomes[row[0]] = outcomes.get(row[0], 0) + row[2]
            if row[1] is not None:
                errors[row[1]] = errors.get(row[1], 0) + row[2]
        called = took.filter("took IS NOT NULL")
        found = called.select(F.percentile_approx("took", list(_PERCENTILES), 10_000)).head()
        if found is not None and found[0] is not None:
            latency = {
                percent: micros / 1e6
                for percent, micros in zip(_PERCENTILES, found[0], strict=True)
            }
        for row in called.groupBy("bucket").count().orderBy("bucket").collect():
            histogram[2 ** (row[0] / 4) / 1e6] = row[1]
    except AnalysisException as error:
        if error.getCondition() not in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise
    return ReplayReport(
        run_id=run_id,
        results=f"{results}/run_id={run_id}",
        ranges=tuple(ranges),
        records=sum(outcomes.values()),
        outcomes=outcomes,
        errors=errors,
        latency=latency,
        histogram=histogram,
        seconds=seconds,
        resumed=resumed,
    )
