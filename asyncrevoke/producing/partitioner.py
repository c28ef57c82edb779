"""Chooses partitions as the default partitioner of Java's producer does."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
# Keys whose partitions are remembered, because hashing takes longer than all the rest.
_REMEMBERED: Final = 50_000
# Bytes of a key that is remembered.
_LONGEST_REMEMBERED: Final = 256


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

    __slots__ = ("_count", "_places")

    def __init__(self) -> None:
        self._count = 0
        # The partitions of keys, and of None: that of records without a key.
        self._places: dict[bytes | None, int] = {}

    def places(self, count: int) -> Mapping[bytes | None, int]:
        """The partitions among ``count`` of the keys that are remembered, and of None."""
        if count != self._count:
            self._forget_keys(count)
        return self._places

    def of_key(self, key: bytes, count: int) -> int:
        """The partition of this key among ``count``."""
        if count != self._count or len(self._places) >= _REMEMBERED:
            self._forget_keys(count)
        partition = self._places.get(key)
        if partition is None:
            partition = (murmur2(key) & 0x7FFFFFFF) % count
            if len(key) <= _LONGEST_REMEMBERED:
                self._places[key] = partition
        return partition

    def without_key(self, led: Sequence[int], count: int) -> int:
        """The partition for records without a key: one of ``led``, which have a leader; of all
        ``count`` if there is none."""
        sticky = self._places.get(None)
        if sticky is None or sticky >= count:
            sticky = self._places[None] = led[0] if led else 0
        return sticky

    def batch_closed(self, partition: int, led: Sequence[int], count: int) -> None:
        """A batch of this partition takes no further records: use the next partition."""
        if partition == self._places.get(None):
            candidates = led or range(count)
            following = [each for each in candidates if each > partition]
            self._places[None] = following[0] if following else candidates[0]

    def _forget_keys(self, count: int) -> None:
        self._count = count
        sticky = self._places.get(None)
        self._places.clear()
        if sticky is not None:
            self._places[None] = sticky
