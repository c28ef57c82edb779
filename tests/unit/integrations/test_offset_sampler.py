"""Which offsets a share of them has."""

from __future__ import annotations

import pytest

from asyncrevoke.integrations.opentelemetry_tracing import OffsetSampler

SHARES = [0.0, 1e-6, 0.001, 0.1, 1 / 3, 0.5, 0.7, 0.999, 1.0]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("first", [0, 1, 12_345, 2**40])
def test_those_within_two_bounds_are_those_that_are_in_it(share: float, first: int) -> None:
    offsets = OffsetSampler(share)
    for last in first, first + 1, first + 2999:
        found = {offset for offset in range(first, last + 1) if offset in offsets}
        assert offsets.within(first, last) == found


@pytest.mark.parametrize("share", SHARES)
def test_it_has_its_share_of_all_offsets_and_of_every_second_one(share: float) -> None:
    offsets, total = OffsetSampler(share), 100_000
    assert len(offsets.within(0, total - 1)) == pytest.approx(share * total, abs=2)
    even = sum(offset % 2 == 0 for offset in offsets.within(0, total - 1))
    assert even == pytest.approx(share * total / 2, rel=0.1, abs=2)
