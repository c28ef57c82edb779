"""Chooses the partition of each row: that of its column, or by key as Java's producer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from asyncrevoke.client.producing.partitioner import murmur2
from asyncrevoke.client.producing.record_batch import BATCH_BYTES
from asyncrevoke.spark.sink.record_encoding import RejectedRow

if TYPE_CHECKING:
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.spark.arrow import Array
    from asyncrevoke.spark.sink.record_encoding import BinaryColumn, Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrevoke.spark.sink.record_encoding import BinaryColumn

    Hashes: TypeAlias = NDArray[np.uint32]

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
# Longer keys are hashed one by one, because the loop below runs once for each word of the longest
# key.
_LONG: Final = 256


def murmur2_of(keys: BinaryColumn) -> Hashes:
    """The hash of each key. A null has the hash of an empty key."""
    length = keys.length.astype(np.uint32)
    hashes = _SEED ^ length
    content = keys.content
    longest = int(length.max(initial=0))
    if longest >= 4:
        # The four bytes from each position on, as numbers.
        words = np.ndarray((len(content) - 3,), "<u4", content, strides=(1,))
        for number in range(min(longest, _LONG) // 4):
            rows = np.flatnonzero(length >= 4 * number + 4)
            hashes[rows] = _mixed(hashes[rows], words[keys.begin[rows] + 4 * number])
    rest = length & np.uint32(3)
    end = keys.begin + keys.length
    for count in (3, 2, 1):
        rows = np.flatnonzero(rest >= count)
        byte = content[end[rows] - rest[rows].astype(np.int64) + count - 1].astype(np.uint32)
        hashes[rows] ^= byte << np.uint32(8 * (count - 1))
    hashes[rest > 0] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(length > _LONG).tolist():
        hashes[row] = murmur2(content[keys.begin[row] : end[row]].tobytes())
    return hashes


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    words = words * _M
    words ^= words >> np.uint32(24)
    return (hashes * _M) ^ (words * _M)


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
