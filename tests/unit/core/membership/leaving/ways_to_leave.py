"""Parameters of tests that leave a classic group."""

from __future__ import annotations

import pytest
from unit.core.scripted_group import (
    ScriptedGroup,
)

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


EITHER_WAY = pytest.mark.parametrize(
    "leave", [ScriptedGroup.close, ScriptedGroup.unsubscribe], ids=["close", "unsubscribe"]
)
