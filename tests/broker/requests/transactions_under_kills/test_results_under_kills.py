"""Members with processing="exactly_once" and brokers that are killed and stopped;
`tox -e exactly-once` does it many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.requests.transactions_under_kills.run import PROPERTIES, Faults, Load, Run

from asyncrevoke.broker import KafkaBroker, KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asyncrevoke.client.config import GroupProtocol

SMALL = Load(members=2, rate=200, pause=0.5)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=PROPERTIES) as broker:
        yield broker


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_killed_and_a_stopped_member_leave_one_result_of_each_record(
    broker: KafkaBroker, tmp_path: Path, protocol: GroupProtocol
) -> None:
    run = Run(broker, f"killed-{protocol}", tmp_path, protocol, seed=1, load=SMALL)
    outcome = await run.execute(Faults(kills=1, stops=1, freezes=0))
    assert outcome.is_good, outcome
    assert outcome.inputs > 200


async def test_results_are_committed_once_while_coordinators_of_a_cluster_restart(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    brokers = kafka_cluster.brokers
    run = Run(kafka_cluster, "restarted", tmp_path, "classic", seed=1, brokers=brokers, load=SMALL)
    outcome = await run.execute(Faults(kills=0, stops=0, freezes=0, restarts=1))
    assert outcome.is_good, outcome


async def test_results_are_committed_once_while_the_transaction_version_changes(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    run = Run(broker, "levels", tmp_path, "consumer", seed=1, load=SMALL)
    outcome = await run.execute(Faults(kills=0, stops=0, freezes=0, levels=3))
    assert outcome.is_good, outcome


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.variant)]
)
async def test_rolling_restarts_to_at_least_once_and_back_double_no_result(
    broker: KafkaBroker, tmp_path: Path, protocol: GroupProtocol
) -> None:
    run = Run(broker, f"switched-{protocol}", tmp_path, protocol, seed=1, load=SMALL)
    outcome = await run.execute(Faults(kills=0, stops=0, freezes=0, switches=2))
    assert outcome.is_good, outcome


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("classic", marks=pytest.mark.variant),
        pytest.param("consumer", marks=pytest.mark.variant),
    ],
)
async def test_a_member_that_is_killed_amid_a_rolling_change_doubles_no_result(
    broker: KafkaBroker, tmp_path: Path, protocol: GroupProtocol
) -> None:
    run = Run(broker, f"killed-amid-{protocol}", tmp_path, protocol, seed=1, load=SMALL)
    outcome = await run.execute(Faults(kills=0, stops=0, freezes=0, killed_switches=2))
    assert outcome.is_good, outcome
