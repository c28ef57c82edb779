"""The metrics that queries of Prometheus name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.integrations import conventions as names
from asyncrevoke.integrations.prometheus import prometheus_name

if TYPE_CHECKING:
    from collections.abc import Iterable


class QueriedMetrics(NamedTuple):
    """``unknown``: names that are neither those of samples nor of labels."""

    metrics: set[str]
    unknown: set[str]


def metrics_of(queries: Iterable[str]) -> QueriedMetrics:
    """What these queries name."""
    used = {
        name
        for query in queries
        for name in re.findall(r"\b((?:messaging|asyncrevoke)_\w+)", query)
    }
    labels = {
        label.replace(".", "_")
        for metric in names.METRICS
        for label in (names.SYSTEM, names.GROUP, names.CLIENT_ID, *metric.attributes)
    }
    samples: set[str] = set()
    for metric in names.METRICS:
        name = prometheus_name(metric)
        samples |= (
            {f"{name}_{part}" for part in ("bucket", "count", "sum")}
            if metric.kind == "histogram"
            else {name}
        )
    metrics = {re.sub("_(bucket|count|sum)$", "", name) for name in used & samples}
    return QueriedMetrics(metrics, used - labels - samples)
