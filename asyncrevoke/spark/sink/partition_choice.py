"""Chooses the partition of each row: the one in its column, otherwise by key as Java's producer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from asyncrevoke.client.producing.record_batch import BATCH_BYTES
from asyncrevoke.spark.sink.key_hashes import murmur2_of
from asyncrevoke.spark.sink.record_encoding import RejectedRow

if TYPE_CHECKING:
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.spark.arrow import Array
    from asyncrevoke.spark.sink.binary_column import BinaryColumn, Numbers


class PartitionChoice:
    """Chooses partitions of one topic, in one task. Rows without a key go to one partition until
    they fill a batch, then to the next partition that has a leader. Tasks begin at random
    partitions."""

    def __init__(self) -> None:
        self._first = random.randrange(2**31)  # noqa: S311 - not a secret
        self._without_key = 0

    def of(
        self, key: BinaryColumn, sizes: Numbers, column: Array | None, known: OutputPartitions
    ) -> Numbers:
        """The partition of each row. ``sizes`` are about the bytes of its record. Raises
        RejectedRow for a partition that does not exist."""
        chosen = (murmur2_of(key) & np.uint32(0x7FFFFFFF)).astype(np.int64) % known.count
        without_key = np.flatnonzero(key.null)
        if without_key.size:
            filled = self._without_key + np.cumsum(sizes[without_key])
            self._without_key = int(filled[-1])
            led = np.array(known.led or range(known.count))
            chosen[without_key] = led[(self._first + filled // BATCH_BYTES) % len(led)]
        if column is not None:
            given = column.fill_null(-1).to_numpy().astype(np.int64)
            named = column.is_valid().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(named & ((given < 0) | (given >= known.count)))
            if wrong.size:
                row = int(wrong[0])
                raise RejectedRow(row, f"there is no partition {given[row]} of {known.count}")
            chosen = np.where(named, given, chosen)
        return chosen
