"""Runs an audit on Spark, for journals and topics that are too large for one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from asyncrevoke.audit.comparison import (
    AuditResult,
    AuditSettings,
    Comparison,
    group_of,
    handler_order_of,
    isolation_level_of,
    sessions_of_group,
)
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.group_offsets import known_offsets, read_group_offsets
from asyncrevoke.audit.report import write_report
from asyncrevoke.audit.rules.views import MERGED
from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.errors import ConfigError
from asyncrevoke.groups.errors import GroupsError
from asyncrevoke.journal.format.schema import BUCKET
from asyncrevoke.printable import shown_option
from asyncrevoke.runtime.hooks.event_log import EventLog
from asyncrevoke.runtime.net.single_request import run_blocking
from asyncrevoke.spark.audits.database import SparkDatabase
from asyncrevoke.spark.audits.dense import DenseSource
from asyncrevoke.spark.audits.journal import checked_journal, with_rule_names
from asyncrevoke.spark.audits.scan_sizes import sizes_of_rows
from asyncrevoke.spark.audits.segments import read_snapshot
from asyncrevoke.spark.audits.sources import FrameSource, TopicSource
from asyncrevoke.spark.reading.offsets import configured
from asyncrevoke.spark.session import check_spark, message_of_task_error
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.audit.comparison import HandlerOrder, Range
    from asyncrevoke.audit.group_offsets import AuditedGroupOffsets
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.journal.reading import SessionState
    from asyncrevoke.spark.audits.sources import TopicRecords


# From this many records on, fingerprints are compared first: to compare each record, Spark sorts
# all of them.
_EXACT_BELOW = 500_000


class AuditOptions(TypedDict, total=False):
    """The settings of an audit."""

    skew: float
    """Seconds: the largest difference between clocks of machines (0.05)."""
    stall: float
    """Seconds: the longest handover that is not reported as a stall (10)."""
    exact: bool
    """Compare every record, however many there are (False)."""


def audit(
    spark: SparkSession,
    *,
    journal: str | os.PathLike[str] | DataFrame,
    source: DataFrame | Mapping[str, str] | Literal["dense"],
    topic: str | None = None,
    group: str | None = None,
    bootstrap: str | Sequence[str] | ConsumerConfig | None = None,
    compacted: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    **settings: Unpack[AuditOptions],
) -> AuditResult:
    """Compare the journal of a group with a topic, by the rules of ``asyncrevoke audit``. Blocks.

    ``journal`` is the folder that consumers wrote to, on any storage that Spark can read, or a
    DataFrame of its rows.

    ``source`` is the topic, in one of three forms. A mapping has the options of
    ``spark.read.format("asyncrevoke")``, with at least ``topic`` and ``bootstrap_servers``: tasks
    read the topic and return fingerprints of it. A DataFrame has the columns ``partition, offset,
    timestamp, key, value`` of all records, and needs ``topic``. ``"dense"`` needs ``topic`` and
    ``bootstrap`` (the brokers, or the configuration of a consumer) and treats each offset as a
    record: the topic is not read, and neither content nor stalls are checked.

    The audit also compares the committed offsets of the group, if the options of the topic or
    ``bootstrap`` name the brokers.

    ``compacted`` says whether the topic is compacted; by default the broker is asked. ``out`` is a
    folder of this machine for ``report.html`` and ``report.json``. For ``settings`` see
    :class:`AuditOptions`.

    Raises ConfigError, also if a topic that was given as ``"dense"`` has gaps, and TopicError if
    the topic cannot be read.
    """
    check_spark(more=["duckdb"])
    from pyspark.errors import PySparkException

    try:
        with sizes_of_rows(spark):
            audited = _audit(
                spark,
                journal,
                source,
                topic,
                group,
                bootstrap,
                AuditSettings(**settings, exact_below=_EXACT_BELOW),
                compacted,
            )
    except PySparkException as error:
        failure = message_of_task_error(error, "the audit")
        if failure is None:
            raise
        raise TopicError(str(failure)) from error
    if out is not None:
        write_report(audited, Path(out))
    return audited


def _audit(
    spark: SparkSession,
    journal: str | os.PathLike[str] | DataFrame,
    source: DataFrame | Mapping[str, str] | Literal["dense"],
    topic: str | None,
    group: str | None,
    bootstrap: str | Sequence[str] | ConsumerConfig | None,
    settings: AuditSettings,
    compacted: bool | None,
) -> AuditResult:
    name = _topic_of(source, topic)
    database = SparkDatabase(spark)
    try:
        rows, known = checked_journal(spark, journal, database.keep)
        group = group_of(known.topics, name, group)
        states = sessions_of_group(known.sessions, group)
        offsets = _group_offsets(source, bootstrap, name, group)
        if group is not None and isinstance(journal, (str, os.PathLike)):
            offsets = known_offsets(offsets, read_snapshot(spark, journal, group, name))
        if any(s.live for s in states):
            # Read again: live sessions write rows to disk before they commit, so the rows of each
            # commit read above exist now.
            rows, known = checked_journal(spark, journal, database.keep)
            states = sessions_of_group(known.sessions, group)
        orders = handler_order_of(known.topics[name, group], states)
        about = rows.where(rows["topic"] == name)
        about = about.where(about["group"].isNull() if group is None else about["group"] == group)
        about = with_rule_names(about)
        if isinstance(source, str):
            dense = _dense(source, name, bootstrap, states)
            database.add("journal", dense.without_content(about))
            comparison = _comparison(database, name, states, orders, dense, settings, offsets)
            audited = _compared(spark, database, group, states, comparison, dense)
            dense.confirm(audited.anomalies)
            return audited
        database.add("journal", about)
        records = _source(source, name, states, compacted)
        comparison = _comparison(database, name, states, orders, records, settings, offsets)
        return _compared(spark, database, group, states, comparison, records)
    finally:
        database.close()


def _comparison(
    database: SparkDatabase,
    topic: str,
    states: tuple[SessionState, ...],
    orders: HandlerOrder,
    source: TopicRecords,
    settings: AuditSettings,
    offsets: AuditedGroupOffsets | None,
) -> Comparison:
    return Comparison(
        database,
        topic,
        source.bounds,
        states,
        orders,
        settings,
        compacted=source.compacted,
        keys=source.has_keys,
        batches=source.batches is not None,
        group_offsets=offsets,
    )


def _group_offsets(
    source: DataFrame | Mapping[str, str] | str,
    bootstrap: str | Sequence[str] | ConsumerConfig | None,
    topic: str,
    group: str | None,
) -> AuditedGroupOffsets | None:
    """The committed offsets; None without a group or brokers, or if no broker responds."""
    if group is None:
        return None
    if isinstance(source, Mapping):
        config = SourceOptions.of({**source, "topic": topic}).config()
    elif bootstrap is not None:
        config = configured(bootstrap, "read_committed")
    else:
        return None
    try:
        return run_blocking(read_group_offsets(config, group, topic))
    except GroupsError as error:
        EventLog().warning("committed offsets not audited", error=str(error))
        return None


def _compared(
    spark: SparkSession,
    database: SparkDatabase,
    group: str | None,
    states: tuple[SessionState, ...],
    comparison: Comparison,
    source: TopicRecords,
) -> AuditResult:
    if (wanted := comparison.batches()) and source.batches is not None:
        database.add("batches", source.batches(spark, wanted))
    windows = ranges = comparison.windows()
    two_tiers = comparison.in_two_tiers(windows)
    read = 0
    if two_tiers:
        read, ranges = differing(spark, database, comparison, source)
    if needed := comparison.compare(ranges):
        database.add("source", source.records(spark, needed))
    else:
        database.add_empty("source", RECORDS)
    if not two_tiers:
        ((read,),) = database.rows("SELECT count(*) FROM source")
    return comparison.result(group, states, ranges, read, two_tiers=two_tiers)


def differing(
    spark: SparkSession, database: SparkDatabase, comparison: Comparison, source: TopicRecords
) -> tuple[int, list[Range]]:
    """The number of records of which fingerprints were read, and the ranges in which they differ
    from the journal's."""
    windows = comparison.windows()
    query = comparison.fingerprints("records")
    found = source.fingerprints(spark, windows, query, hashless=comparison.hashless_partitions)
    buckets = sum((window.hi - window.lo) // BUCKET + 2 for window in windows)
    database.add_bounded("read_fingerprints", found, buckets)
    database.define("source_fingerprints", MERGED)
    return comparison.differing(windows)


def _topic_of(source: DataFrame | Mapping[str, str] | str, topic: str | None) -> str:
    if topic is not None:
        return topic
    if isinstance(source, Mapping) and "topic" in source:
        return source["topic"]
    raise ConfigError('which topic? audit(..., topic="orders")')


def _dense(
    source: str,
    topic: str,
    bootstrap: str | Sequence[str] | ConsumerConfig | None,
    states: tuple[SessionState, ...],
) -> DenseSource:
    if source != "dense":
        raise ConfigError(
            f"source={shown_option(source)}: use the options of the topic, a DataFrame of it, or "
            '"dense"'
        )
    if bootstrap is None:
        raise ConfigError(
            'source="dense" asks brokers where the topic begins and ends: '
            'audit(..., bootstrap="localhost:9092")'
        )
    return DenseSource(bootstrap, topic, committed=isolation_level_of(states) == "read_committed")


def _source(
    source: DataFrame | Mapping[str, str],
    topic: str,
    states: tuple[SessionState, ...],
    compacted: bool | None,
) -> TopicRecords:
    if not isinstance(source, Mapping):
        return FrameSource(source.where(source["topic"] == topic), compacted=compacted is True)
    return TopicSource(
        {"isolation_level": isolation_level_of(states), **source, "topic": topic},
        compacted=compacted,
    )
