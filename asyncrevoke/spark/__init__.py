"""Replays, a data source, handovers of offsets and audits on Apache Spark.

Needs ``pip install 'asyncrevoke[spark]'``. Names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.lazy_names import lazy_names

if TYPE_CHECKING:
    from asyncrevoke.replays.errors import ReplayError
    from asyncrevoke.spark.audits.journal import blobs_frame, journal_views
    from asyncrevoke.spark.audits.run import audit
    from asyncrevoke.spark.errors import (
        DataLossError,
        HandoverError,
        SinkError,
        SparkSetupError,
        StalledReadError,
    )
    from asyncrevoke.spark.handovers.group_handover import handover, plan_handover, read_checkpoint
    from asyncrevoke.spark.reading.dense import dense_offsets
    from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges
    from asyncrevoke.spark.reading.places import GroupOffsets
    from asyncrevoke.spark.replays.progress import ReplayProgress
    from asyncrevoke.spark.replays.report import ReplayReport
    from asyncrevoke.spark.replays.report_page import report_page
    from asyncrevoke.spark.replays.run import replay
    from asyncrevoke.spark.replays.streaming_query import replay_stream
    from asyncrevoke.spark.results.result_tables import ResultTables, failed_ranges, result_tables
    from asyncrevoke.spark.session import open_session
    from asyncrevoke.spark.source.data_source import KafkaSource, register

__all__ = [
    "DataLossError",
    "GroupOffsets",
    "HandoverError",
    "KafkaSource",
    "OffsetRange",
    "ReplayError",
    "ReplayProgress",
    "ReplayReport",
    "ResultTables",
    "SinkError",
    "SparkSetupError",
    "StalledReadError",
    "audit",
    "blobs_frame",
    "dense_offsets",
    "failed_ranges",
    "handover",
    "journal_views",
    "open_session",
    "plan_handover",
    "read_checkpoint",
    "register",
    "replay",
    "replay_stream",
    "report_page",
    "resolve_ranges",
    "result_tables",
]

_loaded = lazy_names(
    __name__,
    {
        "..replays.errors": ("ReplayError",),
        ".audits.journal": ("blobs_frame", "journal_views"),
        ".audits.run": ("audit",),
        ".errors": (
            "DataLossError",
            "HandoverError",
            "SinkError",
            "SparkSetupError",
            "StalledReadError",
        ),
        ".handovers.group_handover": ("handover", "plan_handover", "read_checkpoint"),
        ".reading.dense": ("dense_offsets",),
        ".reading.offsets": ("OffsetRange", "resolve_ranges"),
        ".reading.places": ("GroupOffsets",),
        ".replays.progress": ("ReplayProgress",),
        ".replays.report": ("ReplayReport",),
        ".replays.report_page": ("report_page",),
        ".replays.run": ("replay",),
        ".replays.streaming_query": ("replay_stream",),
        ".results.result_tables": ("ResultTables", "failed_ranges", "result_tables"),
        ".session": ("open_session",),
        ".source.data_source": ("KafkaSource", "register"),
    },
)


def __getattr__(name: str) -> object:
    try:
        return _loaded(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        from asyncrevoke.spark.session import check_spark

        check_spark()
        raise


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
