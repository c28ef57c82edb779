"""Hashes of records, equal to Spark's ``xxhash64``."""

from __future__ import annotations

import sys
from array import array
from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh64_digest, xxh64_intdigest

from asyncrevoke.journal.format.schema import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SIGN = 1 << 63


def key_hash(key: bytes) -> int:
    """The hash of a key as an unsigned number."""
    return xxh64_intdigest(key, HASH_SEED)


def key_hashes(keys: Sequence[bytes | None]) -> list[int] | None:
    """The hashes of keys, as unsigned numbers. None if any key is null."""
    try:
        return list(map(xxh64_intdigest, keys, repeat(HASH_SEED)))  # type: ignore[arg-type]
    except TypeError:
        return None


def signed_key_hashes(keys: Iterable[bytes | None]) -> list[int | None]:
    """The hashes of keys, as signed numbers, as in Spark. None for a null key."""
    return [None if key is None else (key_hash(key) ^ _SIGN) - _SIGN for key in keys]


def record_hashes(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], of_keys: list[int] | None
) -> array[int]:
    """The hash of each key and value, as an unsigned number. ``of_keys`` is the result of
    :func:`key_hashes`. A null does not change the hash, as in Spark."""
    digests = None if of_keys is None else plain_hashes(values, of_keys)
    if digests is None:
        return array("Q", list(map(_record_hash, keys, values)))
    return numbers_of(digests)


def plain_hashes(values: Sequence[bytes | None], of_keys: Iterable[int]) -> bytes | None:
    """The hash of each key and value as big-endian bytes, which creates no int for a record. None
    if any value is null."""
    try:
        return b"".join(map(xxh64_digest, values, of_keys))  # type: ignore[arg-type]
    except TypeError:  # a tombstone
        return None


def numbers_of(digests: bytes) -> array[int]:
    """Big-endian hashes as unsigned numbers."""
    hashes = array("Q", digests)
    if sys.byteorder == "little":
        hashes.byteswap()
    return hashes


def _record_hash(key: bytes | None, value: bytes | None) -> int:
    hashed = HASH_SEED if key is None else key_hash(key)
    return hashed if value is None else xxh64_intdigest(value, hashed)
