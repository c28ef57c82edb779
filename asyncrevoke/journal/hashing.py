"""Hashes of records, the same that Spark's ``xxhash64`` gives."""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh64_intdigest

from asyncrevoke.journal.schema import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence


def key_hashes(keys: Sequence[bytes | None]) -> array[int] | None:
    """The hash of each key as unsigned numbers; None if one of them is null."""
    try:
        return array("Q", map(xxh64_intdigest, keys, repeat(HASH_SEED)))  # type: ignore[arg-type]
    except TypeError:
        return None


def record_hashes(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], of_keys: array[int] | None
) -> array[int]:
    """The hash of each key and value, as unsigned numbers; ``of_keys`` as from the above.

    A null takes no part, as in Spark.
    """
    if of_keys is not None:
        try:
            return array("Q", map(xxh64_intdigest, values, of_keys))  # type: ignore[arg-type]
        except TypeError:
            pass  # a tombstone
    return array("Q", map(_record_hash, keys, values))


def _record_hash(key: bytes | None, value: bytes | None) -> int:
    hashed = HASH_SEED if key is None else xxh64_intdigest(key, HASH_SEED)
    return hashed if value is None else xxh64_intdigest(value, hashed)
