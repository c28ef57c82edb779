"""A short chaos run with a share group; `tox -e share-chaos` draws many more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chaos.environment.proxied_brokers import Stage
from chaos.share.share_faults import FAULTS
from chaos.share.share_run import run_share

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.variant
async def test_faults_lose_no_record_and_repeat_only_what_lost_its_lock(tmp_path: Path) -> None:
    with Stage(3) as stage:
        faults = [FAULTS[name] for name in ("kill", "leader-move", "cut")]
        outcome = await run_share(stage, 1, faults, tmp_path, slack=10.0)
    found = outcome.result
    assert not found.faults, "\n".join([*found.faults, f"evidence: {outcome.evidence}"])
    assert found.produced > 0
