from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays import progress
from asyncrevoke.spark.replays.progress import ProgressReporter, ProgressServer, ReplayProgress

if TYPE_CHECKING:
    import pytest

FIRST, SECOND = OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 0, 50)


def test_tasks_report_and_the_driver_sums_up() -> None:
    received = threading.Event()

    def on_progress(now: ReplayProgress) -> None:
        if now.records == 30:
            received.set()

    with (
        ProgressServer("127.0.0.1", 100, on_progress, None) as server,
        ProgressReporter(server.address, FIRST) as first,
        ProgressReporter(server.address, SECOND) as second,
    ):
        first.report(10, 0, at_once=True)
        second.report(15, 1, at_once=True)
        first.report(15, 1, at_once=True)
        assert server.progress()[:3] == (30, 2, 100)
        assert received.wait(10)
        assert not first.stopped


def test_all_tasks_end_when_all_errors_together_are_too_many() -> None:
    with (
        ProgressServer("127.0.0.1", 100, None, 3) as server,
        ProgressReporter(server.address, FIRST) as first,
        ProgressReporter(server.address, SECOND) as second,
    ):
        first.report(10, 3, at_once=True)
        assert not first.stopped
        second.report(10, 1, at_once=True)
        assert "4 errors, more than max_errors=3" in second.stopped


def test_a_report_without_the_secret_is_ignored() -> None:
    with ProgressServer("127.0.0.1", 100, None, None) as server:
        with ProgressReporter(server.address._replace(secret="x"), FIRST) as stranger:
            stranger.report(10, 0, at_once=True)
        assert server.progress().records == 0


def test_a_tasks_report_is_read_while_300_clients_are_idle() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ProgressServer("127.0.0.1", 100, None, None))
        before = threading.active_count()
        for _ in range(300):
            stack.enter_context(socket.create_connection(server.address[:2], 5))
        with ProgressReporter(server.address, FIRST) as task:
            task.report(10, 0, at_once=True)
            assert server.progress().records == 10
            until = time.monotonic() + 10
            while threading.active_count() > before + 65 and time.monotonic() < until:
                time.sleep(0.01)
            assert threading.active_count() <= before + 65, "a thread for each of them"


def test_a_client_that_does_not_know_the_word_in_time_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_TIMEOUT", 0.2)
    with (
        ProgressServer("127.0.0.1", 100, None, None) as server,
        socket.create_connection(server.address[:2], 10) as silent,
        socket.create_connection(server.address[:2], 10) as stranger,
    ):
        stranger.sendall("\u00fcber\n".encode())
        assert silent.recv(1) == stranger.recv(1) == b""


def test_a_task_that_cannot_reach_the_driver_continues() -> None:
    with ProgressServer("127.0.0.1", 100, None, None) as server:
        address = server.address
    with ProgressReporter(address, FIRST) as alone:
        alone.report(10, 0, at_once=True)
        assert not alone.stopped


def test_the_time_left_follows_from_the_rate() -> None:
    assert ReplayProgress(50, 0, 150, 5.0).seconds_left == 10.0
    assert ReplayProgress(0, 0, 150, 5.0).seconds_left is None
