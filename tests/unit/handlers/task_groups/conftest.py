"""Task groups on a scripted source."""

from __future__ import annotations

import pytest
from unit.handlers.task_groups.scripted_task_group import Setting


@pytest.fixture
def setting() -> Setting:
    return Setting()
