"""The journal: records what a consumer has done, as evidence for audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.journal.journal import Journal

if TYPE_CHECKING:
    from asyncrevoke.journal.topic.kafka_sink import KafkaSink

__all__ = ["Journal", "KafkaSink"]


def __getattr__(name: str) -> object:
    """Import ``KafkaSink`` on first use, because it loads pyarrow and a producer (PEP 562)."""
    if name != "KafkaSink":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from asyncrevoke.journal.topic.kafka_sink import KafkaSink as Sink

    return Sink
