"""Chooses partitions by the key's hash, as Java does; without a key, one per batch (KIP-480)."""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
# Most keys in the cache of partitions: hashing a key takes longer than the rest of a choice.
_CACHED: Final = 50_000
# Most bytes of a key in the cache.
_LONGEST_CACHED: Final = 256


def murmur2(data: bytes) -> int:
    """The 32 bits that ``org.apache.kafka.common.utils.Utils.murmur2`` returns."""
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in struct.unpack_from(f"<{words}I", data):
        k = (k * _M) & _MASK  # noqa: PLW2901
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    rest = data[words << 2 :]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


class Partitioner:
    """The partitioner of one topic.

    The hash of the key chooses the partition. Records without a key go to one partition until
    :meth:`batch_closed`. ``cache`` has the partitions of keys, and for None that of records without
    a key, if the number of partitions is that of the last call.
    """

    __slots__ = ("_count", "cache")

    def __init__(self) -> None:
        self._count = 0
        self.cache: dict[bytes | None, int] = {}

    def cached(self, count: int) -> Mapping[bytes | None, int]:
        """The cached partitions of keys, and of None, in a topic with ``count`` partitions."""
        if count != self._count:
            self._forget_keys(count)
        return self.cache

    def of_key(self, key: bytes, count: int) -> int:
        """The partition of a key in a topic with ``count`` partitions."""
        if count != self._count or len(self.cache) >= _CACHED:
            self._forget_keys(count)
        partition = self.cache.get(key)
        if partition is None:
            partition = (murmur2(key) & 0x7FFFFFFF) % count
            if len(key) <= _LONGEST_CACHED:
                self.cache[key] = partition
        return partition

    def without_key(self, led: Sequence[int], count: int) -> int:
        """The partition for records without a key.

        It is one of ``led``, the partitions with a leader; if there are none, one of all ``count``.
        """
        sticky = self.cache.get(None)
        if sticky is None or sticky >= count:
            sticky = self.cache[None] = led[0] if led else 0
        return sticky

    def batch_closed(self, partition: int, led: Sequence[int], count: int) -> None:
        """A batch of this partition takes no further records: use the next partition.

        ``led`` is in ascending order.
        """
        if partition == self.cache.get(None):
            candidates = led or range(count)
            following = bisect_right(candidates, partition)
            self.cache[None] = candidates[following % len(candidates)]

    def _forget_keys(self, count: int) -> None:
        self._count = count
        sticky = self.cache.get(None)
        self.cache.clear()
        if sticky is not None and sticky < count:
            self.cache[None] = sticky
