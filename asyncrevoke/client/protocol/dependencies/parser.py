"""aiokafka's parser, and with it the codecs, imported when it is first used or by :func:`load`.

To import a part of aiokafka imports all of its clients. A process that plans what Spark reads, or
reads uncompressed batches as columns, needs none of them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.record._protocols import DefaultRecordBatchProtocol


@cache
def batch_class() -> Callable[[bytes | memoryview], DefaultRecordBatchProtocol]:
    """The class that parses a batch."""
    from aiokafka.record.default_records import DefaultRecordBatch

    found: Callable[[bytes | memoryview], DefaultRecordBatchProtocol] = DefaultRecordBatch
    return found


def load() -> None:
    """Import it now, so that no event loop waits for it."""
    batch_class()
