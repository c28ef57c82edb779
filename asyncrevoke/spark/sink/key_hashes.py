"""Computes the hashes (murmur2) by which Java's producer chooses partitions, of many keys at
once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from asyncrevoke.client.producing.partitioner import murmur2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrevoke.spark.sink.binary_column import BinaryColumn

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
