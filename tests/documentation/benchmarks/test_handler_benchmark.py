"""The bookkeeping of the handler benchmark: what it measures is only as good as this."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from benchmarks.clients.handler_clients import OURS, Group, hottest_alone
from benchmarks.handlers import Report, clients_of, keys_of
from benchmarks.workload import handler_work
from benchmarks.workload.handler_work import WORK, Counting, Measured, Sleeping, Timing
from benchmarks.workload.scenarios import SCENARIOS


async def test_it_is_finished_after_the_last_record_and_not_before() -> None:
    work = Counting(3)
    for _ in range(2):
        await work.handle(b"")
        assert not work.finished.is_set()
    await work.handle(b"")
    assert work.finished.is_set()
    assert work.measured().records == 3
    assert work.measured().seconds > 0


async def test_a_loop_is_finished_by_a_batch_that_reaches_past_the_last_record() -> None:
    work = Counting(10)
    work.look(700, 7)
    assert not work.finished.is_set()
    work.look(700, 7)
    assert work.finished.is_set()
    assert work.measured().records == 14


async def test_the_handlers_of_one_key_in_a_row_take_what_each_awaits() -> None:
    work = Sleeping(4)
    await hottest_alone(Group("", "", "", 1), work)
    measured = work.measured()
    assert measured.records == 4
    assert measured.seconds >= 4 * handler_work.HANDLER_TIME


async def test_what_comes_while_a_client_catches_up_has_no_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    work = Timing(100)

    async def handle(sent_before: float) -> None:
        await work.handle((now - int(sent_before * 1e9)).to_bytes(8, "big") + b"x")

    await handle(2.5)
    now += int(handler_work.CATCHING_UP * 1e9)
    for hundredths in range(1, 101):
        await handle(hundredths / 100)
    assert work.finished.is_set()
    measured = work.measured()
    assert measured.records == 100
    assert measured.delay_p50 == pytest.approx(0.5, abs=0.01)
    assert measured.delay_p99 == pytest.approx(0.99, abs=0.01)
    assert measured.delay_max == pytest.approx(1.0)


def test_the_hottest_of_the_skewed_keys_has_a_tenth_of_the_records() -> None:
    skewed = Counter(keys_of("zipf", 20_000)).most_common(2)
    assert 1_800 < skewed[0][1] < 2_300
    assert skewed[1][1] == pytest.approx(skewed[0][1] / 2, rel=0.2)
    assert Counter(keys_of("slow", 20_000)).most_common(1)[0][1] < 20


def test_ratios_are_those_of_each_round() -> None:
    report = Report("noop")
    bare = "aiokafka, bare getmany()"
    report.measured = {
        OURS: [Measured(100, 1.0, 1.0), Measured(100, 2.0, 2.0), Measured(100, 4.0, 2.0)],
        bare: [Measured(100, 0.5, 0.5), Measured(100, 0.5, 0.5), Measured(100, 4.0, 0.5)],
    }
    row = next(line for line in report.text().splitlines() if bare in line)
    assert "200 (25 to 200)" in row
    assert "0.50 (0.25 to 1.00)" in row
    assert "0.25 (0.25 to 0.50)" in row


def test_every_scenario_has_work_and_clients_that_exist() -> None:
    assert WORK.keys() == SCENARIOS.keys()
    for name, scenario in SCENARIOS.items():
        assert scenario.clients[0] == OURS
        assert clients_of(name).keys() >= set(scenario.clients)
