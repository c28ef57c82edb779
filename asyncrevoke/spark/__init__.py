"""Replays, a data source, handovers of offsets and audits on Apache Spark.

Needs ``pip install 'asyncrevoke[spark]'``. Names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.replays.errors import ReplayError
    from asyncrevoke.spark.audits.journal import blobs_frame
    from asyncrevoke.spark.audits.journal_views import journal_views
    from asyncrevoke.spark.audits.run import audit
    from asyncrevoke.spark.errors import (
        DataLossError,
        HandoverError,
        SinkError,
        SparkSetupError,
        StalledReadError,
    )
    from asyncrevoke.spark.handovers.checkpoint import read_checkpoint
    from asyncrevoke.spark.handovers.group_handover import handover, plan_handover
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

_MODULES = {
    "DataLossError": ".errors",
    "GroupOffsets": ".reading.places",
    "HandoverError": ".errors",
    "KafkaSource": ".source.data_source",
    "OffsetRange": ".reading.offsets",
    "ReplayError": "..replays.errors",
    "ReplayProgress": ".replays.progress",
    "ReplayReport": ".replays.report",
    "ResultTables": ".results.result_tables",
    "SinkError": ".errors",
    "SparkSetupError": ".errors",
    "StalledReadError": ".errors",
    "audit": ".audits.run",
    "blobs_frame": ".audits.journal",
    "dense_offsets": ".reading.dense",
    "failed_ranges": ".results.failed_ranges",
    "handover": ".handovers.group_handover",
    "journal_views": ".audits.journal_views",
    "open_session": ".session",
    "plan_handover": ".handovers.group_handover",
    "read_checkpoint": ".handovers.checkpoint",
    "register": ".source.data_source",
    "replay": ".replays.run",
    "replay_stream": ".replays.streaming_query",
    "report_page": ".replays.report_page",
    "resolve_ranges": ".reading.offsets",
    "result_tables": ".results.result_tables",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_MODULES[name], __name__), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        from asyncrevoke.spark.session import check_spark

        check_spark()
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
