"""Runs an audit on Spark, for journals and topics that are too large for one machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, cast

import msgspec

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.audited_group import (
    AuditedGroup,
    AuditSettings,
    group_of,
    handler_order_of,
    isolation_level_of,
    sessions_of_group,
    vouched_sessions,
)
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.offsets import (
    AuditedGroupOffsets,
    Bounds,
    is_of,
    known_offsets,
    read_group_offsets,
)
from asyncrevoke.audit.results.audit_result import AuditResult, PartialAudit, merged
from asyncrevoke.audit.results.report import write_report
from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.journal.errors import DamagedJournalError
from asyncrevoke.journal.session_list import SessionList
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.journal import CheckedJournal, checked_journal
from asyncrevoke.spark.audits.packed_rows import PackRows
from asyncrevoke.spark.audits.partition_task import AUDITED, PartitionTask
from asyncrevoke.spark.audits.segments import read_snapshot
from asyncrevoke.spark.audits.sources import DenseTopic, RecordsFrame, TopicReader, broker_records
from asyncrevoke.spark.reading.dense import check_all, check_dense
from asyncrevoke.spark.reading.offsets import OffsetRange, configured, resolve_ranges
from asyncrevoke.spark.session import check_spark, is_connected, message_of_task_error
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.client.config import ConsumerConfig

# Kinds of anomalies that a gap in the topic would cause.
_ABSENCES = frozenset({AnomalyKind.LOST, AnomalyKind.NOT_RECORDED, AnomalyKind.SOUGHT_PAST})


def dense_reader(
    bootstrap: str | Sequence[str] | ConsumerConfig, topic: str, *, committed: bool
) -> DenseTopic:
    """Ask the brokers where the topic begins and ends, and read the offsets that show whether it
    has gaps. Raises ConfigError if it has any."""
    found = resolve_ranges(
        bootstrap,
        topic,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    check_dense(bootstrap, found)
    return DenseTopic(
        {candidate.partition: Bounds(candidate.start, candidate.end) for candidate in found}
    )


def confirm(
    bootstrap: str | Sequence[str] | ConsumerConfig, topic: str, anomalies: Sequence[Anomaly]
) -> None:
    """Raise ConfigError if an offset that an anomaly reports as lost is a gap."""
    check_all(
        bootstrap,
        [
            OffsetRange(topic, a.partition, a.offset_lo, a.offset_hi + 1)
            for a in anomalies
            if a.kind in _ABSENCES
            and a.partition is not None
            and a.offset_lo is not None
            and a.offset_hi is not None
        ],
    )


# The offsets that a task compares, about. A task takes about a second beside its records.
_OFFSETS: Final = 4_000_000
_MEMORY: Final = 512 * 2**20
_LEAST_MEMORY: Final = 128 * 2**20
# The tasks of a Spark Connect server, whose cores are not known.
_CONNECTED: Final = 8


class AuditOptions(TypedDict, total=False):
    """The settings of an audit."""

    skew: float
    """Seconds: the largest difference between clocks of machines (0.05)."""
    stall: float
    """Seconds: the longest handover that is not reported as a stall (10)."""
    exact: bool
    """Compare every record, however many there are (False)."""
    memory_limit: int
    """Bytes of memory for the rows and the comparison in each task (512 MiB), at least 128 MiB. The
    rest goes to a temporary folder of the task's machine."""
    sessions: str | os.PathLike[str] | Collection[str] | None
    """All sessions that the group has had: their ids, or the path of a file on this machine that
    lists them (``sessions.json`` of ``asyncrevoke journal collect``, or an id in each line).
    Committed records that no journal names are then lost, and a missing journal fails the audit.
    None (default): the journals of some sessions may be missing."""


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
    read the topic. A DataFrame has the columns ``partition, offset, timestamp, key, value`` of all
    records, and needs ``topic``. ``"dense"`` needs ``topic`` and ``bootstrap`` (the brokers, or the
    configuration of a consumer) and treats each offset as a record: the topic is not read, and
    neither content nor stalls are checked.

    The audit also compares the committed offsets of the group, if the options of the topic or
    ``bootstrap`` name the brokers.

    ``compacted`` says whether the topic is compacted; by default the broker is asked. ``out`` is a
    folder of this machine for ``report.html`` and ``report.json``. For ``settings`` see
    :class:`AuditOptions`.

    Spark moves the rows of each partition to one task, which audits the partition with DuckDB: the
    workers need the extra ``spark``.

    Raises ConfigError, also if a topic that was given as ``"dense"`` has gaps, ``memory_limit`` is
    too low or ``sessions`` lacks a session of the group, TopicError if the topic cannot be read,
    and DamagedJournalError if a file changed during the audit.
    """
    check_spark(more=["duckdb"])
    from pyspark.errors import PySparkException

    try:
        audited = _audit(spark, journal, source, topic, group, bootstrap, settings, compacted)
    except PySparkException as error:
        failure = message_of_task_error(
            error, "the audit", known=(ConfigError, DamagedJournalError), other=TopicError
        )
        if failure is None:
            raise
        raise failure from error
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
    settings: AuditOptions,
    compacted: bool | None,
) -> AuditResult:
    limit = settings.get("memory_limit", _MEMORY)
    if limit < _LEAST_MEMORY:
        raise ConfigError(f"memory_limit={limit} bytes is too low: a task needs {_LEAST_MEMORY}")
    name = _topic_of(source, topic)
    listed = _listed(settings.get("sessions"))
    checked = checked_journal(spark, journal)
    group = group_of(checked.overview.topics, name, group)
    states = sessions_of_group(checked.overview.sessions, group)
    offsets = _group_offsets(source, bootstrap, name, group)
    if group is not None and isinstance(journal, (str, os.PathLike)):
        snapshot = read_snapshot(spark, journal, group, name)
        offsets = known_offsets(None if is_of(snapshot, listed) else offsets, snapshot)
    if any(s.live for s in states):
        # Read again: live sessions write rows to disk before they commit, so the rows of each
        # commit read above exist now.
        checked = checked_journal(spark, journal)
        states = sessions_of_group(checked.overview.sessions, group)
    orders = handler_order_of(checked.overview.topics[name, group], states)
    known = checked.overview
    vouched = vouched_sessions(listed, known.sessions, known.without_rows, group)
    audited = AuditedGroup(name, group, states, orders, offsets, _settings(settings), vouched)
    level = isolation_level_of(states, offsets)
    if isinstance(source, str):
        brokers = _brokers_of_dense(source, bootstrap)
        reader = dense_reader(brokers, name, committed=level == "read_committed")
        result = _compared(checked, audited, reader, limit)
        confirm(brokers, name, result.anomalies)
        return result
    if isinstance(source, Mapping):
        options = {"isolation_level": level, **source, "topic": name}
        return _compared(checked, audited, broker_records(options, compacted=compacted), limit)
    records = RecordsFrame(source.where(source["topic"] == name), compacted=compacted is True)
    return _compared(checked, audited, records.reader, limit, records)


def _listed(sessions: str | os.PathLike[str] | Collection[str] | None) -> SessionList | None:
    if sessions is None:
        return None
    if isinstance(sessions, (str, os.PathLike)):
        return SessionList.read(sessions)
    return SessionList.of(sessions)


def _settings(options: AuditOptions) -> AuditSettings:
    default = AuditSettings()
    return AuditSettings(
        options.get("skew", default.skew),
        options.get("stall", default.stall),
        options.get("exact", default.exact),
    )


def _compared(
    journal: CheckedJournal,
    group: AuditedGroup,
    source: TopicReader,
    memory_limit: int,
    records: RecordsFrame | None = None,
) -> AuditResult:
    """Move the rows of each partition, and the ``records`` of a DataFrame, to one task, and audit
    them there."""
    spark = journal.spark
    tasks = _tasks(spark, source)
    names = [state.name for state in group.sessions]
    rows = journal.packed(PackRows(group.topic, group.name, names, tasks))
    # A task without rows also audits its partitions: their committed offsets may have none.
    nothing = ["CAST(NULL AS STRING) AS name", "CAST(NULL AS BINARY) AS rows"]
    blobs = spark.range(tasks).selectExpr("CAST(id AS INT) AS task", *nothing)
    blobs = blobs.unionAll(rows)
    if records is not None:
        blobs = blobs.unionAll(records.packed(tasks))
    moved = cast("DataFrame", cast("Any", blobs).repartitionById(tasks, blobs["task"]))
    task = PartitionTask(group, source, tasks, memory_limit)
    found = cast("list[tuple[bytes]]", map_in_arrow(moved, task.run, AUDITED).collect())
    parts = [msgspec.msgpack.decode(made, type=PartialAudit) for (made,) in found]
    return merged(group, parts)


def _tasks(spark: SparkSession, source: TopicReader) -> int:
    """The number of tasks: one for each core, more for many offsets, at most one for each
    partition."""
    offsets = sum(bound.hi - bound.lo for bound in source.bounds.values())
    cores = _CONNECTED if is_connected(spark) else spark.sparkContext.defaultParallelism
    return max(1, min(max(cores, offsets // _OFFSETS), len(source.bounds)))


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
        log_events.OFFSETS_NOT_AUDITED.write_to(EventLog(), error=str(error))
        return None


def _topic_of(source: DataFrame | Mapping[str, str] | str, topic: str | None) -> str:
    if topic is not None:
        return topic
    if isinstance(source, Mapping) and "topic" in source:
        return source["topic"]
    raise ConfigError('which topic? audit(..., topic="orders")')


def _brokers_of_dense(
    source: str, bootstrap: str | Sequence[str] | ConsumerConfig | None
) -> str | Sequence[str] | ConsumerConfig:
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
    return bootstrap
