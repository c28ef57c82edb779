"""A share of all offsets, the same each time they are asked for."""

from __future__ import annotations

_ALL = 2**30
# By the golden ratio, so that what is neighbouring is spread.
_SPREAD, _MASK = 2_654_435_769, 2**32 - 1


class Share:
    """``offset in share`` is true of this share (from 0 to 1) of all offsets.

    Offsets stand in blocks, of which each has one: so those within two bounds are found without a
    look at the others. Which one of its block it is seems to be by chance, so that what repeats in
    a log (every second offset a marker, for example) is met as often as all else.
    """

    def __init__(self, share: float) -> None:
        self._share = round(share * _ALL)

    def __contains__(self, offset: int) -> bool:
        return bool(self._share) and self._of_block(offset * self._share // _ALL) == offset

    def within(self, first: int, last: int) -> set[int]:
        """Those from ``first`` to ``last``."""
        share = self._share
        if not share:
            return set()
        blocks = range(first * share // _ALL, last * share // _ALL + 1)
        return {offset for block in blocks if first <= (offset := self._of_block(block)) <= last}

    def _of_block(self, block: int) -> int:
        begin = -(-block * _ALL // self._share)
        end = -(-(block + 1) * _ALL // self._share)
        return begin + (block * _SPREAD & _MASK) % (end - begin)
