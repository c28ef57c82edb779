"""Brokers with groups that a test describes."""

from __future__ import annotations

import pytest
from unit.groups.fake_brokers import FakeBrokers


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()
