"""A topic of memory as Spark reads one."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.journal import written_journal

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.journal.format.arrow import pa

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.spark.audits import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from unit.journal.written_journal import JournalledTopic

    from asyncrevoke.audit.offsets import AuditedGroupOffsets, Bounds
    from asyncrevoke.audit.results.audit_result import AuditResult


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


@dataclass(frozen=True)
class MemoryReader:
    """Reads a topic of memory in the tasks of an audit. Implements
    ``asyncrevoke.spark.audits.sources.TopicReader``."""

    topic: JournalledTopic

    has_keys = True
    has_content = True

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """See the protocol."""
        return self.topic.bounds

    def opened(self, _database: object, bounds: Mapping[int, Bounds]) -> JournalledTopic:
        """See the protocol."""
        some = copy.copy(self.topic)
        some.logs = {number: self.topic.logs[number] for number in bounds}
        return some


def always(value: Any) -> Callable[..., Any]:
    """A function that returns this value for any arguments."""

    def given(*_: Any, **__: Any) -> Any:
        return value

    return given


def audit_in_memory(
    spark: SparkSession,
    folder: Path,
    topic: JournalledTopic,
    *,
    group_offsets: AuditedGroupOffsets | None = None,
    tasks: int | None = None,
    **options: Any,
) -> AuditResult:
    """Audit by fingerprints, with this topic in place of one of brokers."""
    from pyspark import cloudpickle

    for module in (written_journal, sys.modules[__name__]):
        # Workers cannot import the tests.
        cast("Any", cloudpickle).register_pickle_by_value(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "broker_records", always(MemoryReader(topic)))
        patch.setattr(run, "_group_offsets", always(group_offsets))
        patch.setattr(run, "_settings", always(AuditSettings(exact_below=0)))
        if tasks is not None:
            patch.setattr(run, "_tasks", always(tasks))
        source = {"topic": written_journal.TOPIC, "bootstrap_servers": "nowhere:9092"}
        return run.audit(spark, journal=folder, source=source, **options)
