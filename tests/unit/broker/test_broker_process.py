from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.broker.broker import KafkaBroker
from asyncrevoke.broker.errors import BrokerStartError
from asyncrevoke.broker.process.process import BrokerProcess, run_to_end, tail

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

SLEEPER = (sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A process that nobody has waited for yet counts as ended.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc").exists()


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    process = BrokerProcess(SLEEPER, log, None)
    wait_until(lambda: tail(log) == "before\nready")
    process.kill()
    assert not process.running


def test_kill_ends_the_program_and_keeps_its_folder(tmp_path: Path) -> None:
    process = BrokerProcess(SLEEPER, tmp_path / "log", tmp_path)
    pid = process.pid
    process.kill()
    assert not alive(pid)
    assert tmp_path.exists()


def test_terminate_kills_what_does_not_obey(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(600)"
    )
    process = BrokerProcess((sys.executable, "-c", script), log, None)
    wait_until(lambda: tail(log) == "ready")
    assert process.terminate(timeout=0.2) is False
    assert not alive(process.pid)


def test_terminate_ends_a_paused_program(tmp_path: Path) -> None:
    process = BrokerProcess(SLEEPER, tmp_path / "log", None)
    process.send(signal.SIGSTOP)
    assert process.terminate(timeout=10) is True


def test_exit_code_is_the_programs(tmp_path: Path) -> None:
    process = BrokerProcess((sys.executable, "-c", "raise SystemExit(7)"), tmp_path / "log", None)
    wait_until(lambda: not process.running)
    assert process.exit_code == 7
    process.kill()


def test_program_that_is_not_there_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match="No such file"):
        BrokerProcess(("/no/such/program",), tmp_path / "log", None)


def test_ended_thread_does_not_end_the_program_it_started(tmp_path: Path) -> None:
    import threading

    started: list[BrokerProcess] = []
    log = tmp_path / "log"
    thread = threading.Thread(target=lambda: started.append(BrokerProcess(SLEEPER, log, None)))
    thread.start()
    thread.join()
    (process,) = started
    wait_until(lambda: tail(log) == "ready")
    assert process.running
    process.kill()


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "a-forked-copy-lives-on"])
def test_killed_parent_takes_program_and_folder_along(tmp_path: Path, forks: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # The forked copy keeps the pipe's end open, as a child made by multiprocessing does.
    script = textwrap.dedent(f"""
        import os, sys, time
        from pathlib import Path
        from asyncrevoke.broker.process.process import BrokerProcess
        process = BrokerProcess({SLEEPER!r}, Path({str(tmp_path / "log")!r}), Path({str(folder)!r}))
        copy = 0
        if {forks}:
            copy = os.fork()
            if copy == 0:
                time.sleep(600)
        print(process.pid, copy, flush=True)
        time.sleep(600)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert parent.stdout is not None
    with parent.stdout as output:
        pid, copy = map(int, output.readline().split())
    try:
        assert alive(pid)
        parent.kill()
        parent.wait()
        wait_until(lambda: not alive(pid))
        wait_until(lambda: not folder.exists())
    finally:
        if copy:
            os.kill(copy, signal.SIGKILL)


def test_run_to_end_gives_exit_code_and_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = run_to_end((sys.executable, "-c", "print('done'); raise SystemExit(3)"), log, 20)
    assert (code, tail(log)) == (3, "done")


def test_run_to_end_stops_what_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match=r"longer than 0\.5 s"):
        run_to_end(SLEEPER, tmp_path / "log", 0.5)


def test_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert tail(log, 2) == "line 998\nline 999"
    assert tail(tmp_path / "nothing") == ""


def test_a_folder_that_kafka_would_split_is_refused_and_not_made(tmp_path: Path) -> None:
    broker = KafkaBroker(folder=tmp_path / "data,2")
    with pytest.raises(BrokerStartError, match=r"data,2 has one: use a folder without commas"):
        _ = broker.log_path
    assert not list(tmp_path.iterdir())
