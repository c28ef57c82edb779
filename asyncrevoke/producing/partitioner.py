"""Chooses partitions as the default partitioner of Java's producer does."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
# Keys whose partitions are remembered, because hashing takes longer than all the rest.
_REMEMBERED: Final = 50_000


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
    """Of one topic. Records with a key go by its hash; those without stay with one partition until
    :meth:`batch_closed`."""

    __slots__ = ("_by_key", "_count", "_sticky")

    def __init__(self) -> None:
        self._count = 0
        self._by_key: dict[bytes, int] = {}
        self._sticky: int | None = None

    def of_key(self, key: bytes, count: int) -> int:
        """The partition of this key among ``count``."""
        if count != self._count or len(self._by_key) >= _REMEMBERED:
            self._count = count
            self._by_key.clear()
        partition = self._by_key.get(key)
        if partition is None:
            partition = self._by_key[key] = (murmur2(key) & 0x7FFFFFFF) % count
        return partition

    def without_key(self, led: Sequence[int], count: int) -> int:
        """The partition for records without a key: one of ``led``, which have a leader; of all
        ``count`` if there is none."""
        if self._sticky is None or self._sticky >= count:
            self._sticky = led[0] if led else 0
        return self._sticky

    def batch_closed(self, partition: int, led: Sequence[int], count: int) -> None:
        """A batch of this partition takes no further records: use the next partition."""
        if partition == self._sticky:
            candidates = led or range(count)
            following = [each for each in candidates if each > partition]
            self._sticky = following[0] if following else candidates[0]
