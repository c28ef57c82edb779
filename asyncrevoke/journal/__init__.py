"""The journal: records what a consumer has done, as evidence for audits.

All names but ``Journal`` are loaded when they are first used (PEP 562): pyarrow, DuckDB and a
producer take long to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.lazy_names import lazy_names
from asyncrevoke.journal.journal import Journal

if TYPE_CHECKING:
    from asyncrevoke.journal.errors import DamagedJournalError
    from asyncrevoke.journal.reading import JournalContent, read_journal
    from asyncrevoke.journal.topic.kafka_sink import KafkaSink
    from asyncrevoke.journal.views import open_views

__all__ = [
    "DamagedJournalError",
    "Journal",
    "JournalContent",
    "KafkaSink",
    "open_views",
    "read_journal",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".errors": ("DamagedJournalError",),
        ".reading": ("JournalContent", "read_journal"),
        ".topic.kafka_sink": ("KafkaSink",),
        ".views": ("open_views",),
    },
)
