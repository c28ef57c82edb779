"""The interval that a comparison of two checkouts prints."""

from __future__ import annotations

import math

import pytest

from benchmarks.versions import interval


def test_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert interval([2.0, 0.5]).mean == pytest.approx(1.0)


def test_equal_ratios_leave_no_interval() -> None:
    assert interval([0.9] * 5) == pytest.approx((0.9, 0.9, 0.9))


def test_fifteen_ratios_use_the_quantile_of_14_degrees_of_freedom() -> None:
    found = interval([math.exp(0.02), math.exp(-0.02)] * 7 + [1.0])
    # The standard deviation of the logarithms is exactly 0.02.
    assert math.log(found.high) == pytest.approx(2.145 * 0.02 / math.sqrt(15))
    assert math.log(found.low) == pytest.approx(-2.145 * 0.02 / math.sqrt(15))
