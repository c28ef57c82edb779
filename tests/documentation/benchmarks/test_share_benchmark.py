"""The bookkeeping of the benchmark of share groups."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from benchmarks.clients.java_clients import Told
from benchmarks.report.results import SHARE, Found, page
from benchmarks.share.__main__ import SCENARIOS, Report
from benchmarks.share.clients import CLIENTS, JAVA, OURS, RAW, TIMED
from benchmarks.share.turn import Measured, Task, Turn, bytes_received

TASK = Task("", "", "", total=20, at_once=10)
MEASURED = Measured(20, 0.5, 0.25, 1.5, 2_200, 4, 0, 0, (0.001, 0.003), (0.002,))
PLAIN: Found = {"surroundings": {}, "command": "", "minutes": 1.0, "failed": {}}


def test_a_turn_is_measured_from_the_first_record_to_the_last_one() -> None:
    turn = Turn(TASK)
    turn.subscribe()
    assert not turn.handled(10)
    assert not turn.handled(1, again=1)
    assert turn.handled(10)
    assert turn.finished.is_set()
    measured = turn.measured()
    assert (measured.records, measured.again) == (21, 1)
    assert 0 < measured.seconds < 1
    assert 0 < measured.first < 60


def test_a_program_reports_all_of_its_turn() -> None:
    turn = Turn(TASK)
    turn.report(Told(20, 2000, 0.5, 0.25, 10, (6.5, 2_500.0, 8.0, 3.0)))
    assert turn.measured() == Measured(20, 0.5, 0.25, 6.5, 2_500, 8, 3)


async def test_bytes_are_counted_that_open_connections_have_received() -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(secrets.token_bytes(5_000))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        before = bytes_received()
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readexactly(5_000)
        assert bytes_received() - before == 5_000
        writer.close()
        await writer.wait_closed()


def test_every_scenario_has_clients_and_a_section() -> None:
    assert SCENARIOS.keys() == SHARE.keys()
    for name, scenario in SCENARIOS.items():
        assert scenario.clients[0] == OURS
        assert (TIMED if name == "latency" else CLIENTS).keys() >= set(scenario.clients)


def test_the_report_has_rates_costs_and_delays() -> None:
    report = Report("noop", [OURS, JAVA])
    report.measured[OURS].append(MEASURED)
    report.measured[JAVA].append(MEASURED._replace(seconds=2.0, again=7))
    (row,) = [line for line in report.text().splitlines() if line.startswith(f"| {JAVA}")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["10 (10 to 10)", "4.00 (4.00 to 4.00)"]
    assert cells[5:8] == ["110 (110 to 110)", "0.2000 (0.2000 to 0.2000)", "7"]
    assert cells[9:] == ["2.00 (2.00 to 2.00)", "2.00 (2.00 to 2.00)"]


@pytest.mark.parametrize("scenario", ["noop", "latency", "renewal"])
def test_the_page_has_each_scenario(scenario: str) -> None:
    report = Report(scenario, [OURS, RAW])
    report.measured[OURS].append(MEASURED)
    report.measured[RAW].append(MEASURED)
    text = page({"share": {scenario: report.for_machines(), **PLAIN}})
    assert f"## {SHARE[scenario][0]}" in text
    assert f"| {RAW}" in text
