"""Samples a share of all offsets, the same in each process."""

from __future__ import annotations

_ALL = 2**30
# Multiplying by the golden ratio spreads neighbouring blocks.
_SPREAD, _MASK = 2_654_435_769, 2**32 - 1


class OffsetSampler:
    """``offset in sampler`` is true for the ``share`` (from 0 to 1) of all offsets.

    Each block of offsets has one sampled offset, so the samples of a range are found without
    testing all offsets. It is pseudo-random, so a pattern in the log (such as a marker at every
    second offset) does not bias the sample.
    """

    def __init__(self, share: float) -> None:
        self._share = round(share * _ALL)

    def __contains__(self, offset: int) -> bool:
        return bool(self._share) and self._of_block(offset * self._share // _ALL) == offset

    def within(self, first: int, last: int) -> set[int]:
        """The sampled offsets from ``first`` to ``last``."""
        share = self._share
        if not share:
            return set()
        blocks = range(first * share // _ALL, last * share // _ALL + 1)
        return {offset for block in blocks if first <= (offset := self._of_block(block)) <= last}

    def _of_block(self, block: int) -> int:
        begin = -(-block * _ALL // self._share)
        end = -(-(block + 1) * _ALL // self._share)
        return begin + (block * _SPREAD & _MASK) % (end - begin)
