"""SIGINT and SIGTERM drain a running consumer; a second one ends the process at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
sys.path[:0] = [{root!r}, {tests!r}]
from unit.scripted_core import result, scripted_consumer, until

consumer = scripted_consumer()
go_on = asyncio.Event()

@consumer.handler("orders")
async def handle(value: bytes) -> None:
    print("started", flush=True)
    if {drains}:
        # The first signal stops the consumer; then this ends.
        await until(lambda: consumer.core.stopping)
    else:
        await asyncio.Event().wait()

async def main() -> None:
    running = asyncio.create_task(consumer.run())
    await until(lambda: hasattr(consumer, "session"))
    consumer.deliver(result(1))
    await until(lambda: consumer.core.stopping)
    print("draining", flush=True)
    await running
    print("completed", consumer.core.asked("complete"), flush=True)

asyncio.run(main())
"""


def start(*, drains: bool) -> subprocess.Popen[str]:
    code = PROGRAM.format(root=str(ROOT), tests=str(ROOT / "tests"), drains=drains)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return
    raise AssertionError(f"it ended without saying {word!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(number: signal.Signals) -> None:
    with start(drains=True) as process:
        read_until(process, "started")
        process.send_signal(number)
        read_until(process, "completed [1]")
        assert process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    with start(drains=False) as process:
        read_until(process, "started")
        process.send_signal(number)
        read_until(process, "draining")
        process.send_signal(number)
        assert process.wait(10) == -number
