"""Audits a topic without gaps by its offsets: each offset is a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.ranges import Bounds
from asyncrevoke.spark.audits.sources import DenseReader
from asyncrevoke.spark.reading.dense import check_all, check_dense
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.audit.anomalies import Anomaly
    from asyncrevoke.client.config import ConsumerConfig

# Kinds of anomalies that a gap in the topic would cause.
_ABSENCES = frozenset({AnomalyKind.LOST, AnomalyKind.NOT_RECORDED, AnomalyKind.SOUGHT_PAST})


def dense_reader(
    bootstrap: str | Sequence[str] | ConsumerConfig, topic: str, *, committed: bool
) -> DenseReader:
    """Ask the brokers where the topic begins and ends, and read the offsets that show whether it
    has gaps. Raises ConfigError if it has any."""
    found = resolve_ranges(
        bootstrap,
        topic,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    check_dense(bootstrap, found)
    return DenseReader(
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
