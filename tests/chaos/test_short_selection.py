"""A short selection of chaos runs; `tox -e chaos` draws many more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from chaos.environment.proxied_brokers import Stage
from chaos.run import run
from chaos.scenario import FAULTS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chaos.environment.group import ProtocolName

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

# Other tests use the machine at the same time.
SLACK = 10.0
# Where no fault may cost a session, it is long enough for a machine that is busy.
_LONG_SESSION: dict[str, Any] = {"session_timeout": 15.0}
SELECTION: list[tuple[ProtocolName, int, tuple[str, ...], dict[str, Any]]] = [
    ("consumer", 1, ("kill", "black-hole"), {}),
]
VARIANTS: list[tuple[ProtocolName, int, tuple[str, ...], dict[str, Any]]] = [
    ("cooperative", 1, ("leave", "kill", "cut"), {}),
    ("consumer", 1, ("black-hole", "long-freeze"), {}),
    ("eager", 1, ("hang", "raise", "refuse", "leave"), _LONG_SESSION),
    ("cooperative", 3, ("black-hole", "broker-kill"), _LONG_SESSION),
]


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[int, Stage]]:
    """Brokers by their number, started when they are first asked for."""
    started: dict[int, Stage] = {}
    yield started
    for stage in started.values():
        stage.close()


@pytest.mark.parametrize(
    ("protocol", "size", "faults", "options"),
    [*SELECTION, *(pytest.param(*run_of, marks=pytest.mark.variant) for run_of in VARIANTS)],
    ids=[
        f"{protocol} on {size}: {', '.join(faults)}"
        for protocol, size, faults, _ in (*SELECTION, *VARIANTS)
    ],
)
async def test_faults_lose_and_reorder_nothing_and_repeat_only_permitted_records(
    stages: dict[int, Stage],
    tmp_path: Path,
    protocol: ProtocolName,
    size: int,
    faults: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    if size not in stages:
        for other in stages.values():
            other.close()
        stages.clear()
        stages[size] = Stage(size)
    stages[size].start()
    scenario = Scenario(1, protocol, tuple(FAULTS[name] for name in faults))
    outcome = await run(stages[size], scenario, tmp_path, slack=SLACK, options=options)
    found = outcome.check_run
    assert not found.faults, "\n".join([*found.faults, f"evidence: {outcome.evidence}"])
    assert found.produced > 0
