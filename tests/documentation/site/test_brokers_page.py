"""The page on brokers says what the last run of ``tox -e servers`` has found."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from broker.servers.outcome import CAPABILITIES, CLIENTS, Outcome, ServerOutcome, load
from broker.servers.page import PAGE, differences, with_tables
from broker.servers.reasons import Reason

README = Path(__file__).parents[3] / "README.md"


def test_the_tables_of_the_page_are_those_of_the_last_run() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page, load()), "run `python -m broker.servers.page`"


def test_each_cell_that_is_not_filled_has_a_reason() -> None:
    assert differences(load()) == []


def test_the_last_run_had_every_server_and_every_program() -> None:
    for server, found in load().servers.items():
        assert set(found.clients) == set(CLIENTS), server
        assert date.fromisoformat(found.day) <= datetime.now(UTC).date()
        assert not found.skipped, server
        assert list(found.cells) == list(CAPABILITIES), server


def test_the_readme_names_each_tested_server_with_its_version() -> None:
    readme = " ".join(README.read_text("utf-8").split())
    for server, found in load().servers.items():
        name = server.split(",", maxsplit=1)[0].split("'", maxsplit=1)[0]
        assert name.removesuffix(" with ZooKeeper") in readme, server
        assert found.version in readme, f"{server} {found.version}"


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_reported() -> None:
    cells: dict[str, dict[str, str | None]] = {
        "loop": {"asyncrevoke": None, "aiokafka": "it stops", "confluent-kafka": "x"}
    }
    outcome = Outcome({"kfake": ServerOutcome("1", cells=cells)})
    reasons = [
        Reason("kfake", ("loop",), ("asyncrevoke", "confluent-kafka"), "it has none"),
    ]
    assert differences(outcome, reasons) == [
        "kfake: loop by asyncrevoke works, and reasons.py says why it does not",
        "kfake: loop by aiokafka failed, and reasons.py does not say why: it stops",
    ]
