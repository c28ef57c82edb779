"""SIGINT and SIGTERM drain a running consumer; a second one ends the process at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PROGRAM = """
import asyncio, sys
sys.path[:0] = [{root!r}, {tests!r}]
from unit.runtime.scripted_core import result, scripted_consumer, until

consumer = scripted_consumer()
go_on = asyncio.Event()

@consumer.handler("orders")
async def handle(value: bytes) -> None:
    print("started", flush=True)
    if {drains}:
        # The first signal stops the consumer; then this ends.
        await until(lambda: consumer.core.poller.stopping)
    else:
        await asyncio.Event().wait()

async def main() -> None:
    running = asyncio.create_task(consumer.run())
    await until(lambda: hasattr(consumer, "session"))
    consumer.deliver(result(1))
    await until(lambda: consumer.core.poller.stopping)
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


SEVERAL = """
import asyncio, sys
sys.path[:0] = [{root!r}, {tests!r}]
from unit.runtime.scripted_core import scripted_consumer, until

consumers = [scripted_consumer(), scripted_consumer()]

async def handle(value: bytes) -> None: ...

for consumer in consumers:
    consumer.handler("orders")(handle)

async def main() -> None:
    running = asyncio.gather(*(consumer.run() for consumer in consumers))
    await until(lambda: all(hasattr(consumer, "session") for consumer in consumers))
    print("started", flush=True)
    await running

asyncio.run(main())
print("returned", flush=True)
"""


def test_a_signal_drains_all_consumers_that_run() -> None:
    code = SEVERAL.format(root=str(ROOT), tests=str(ROOT / "tests"))
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            read_until(process, "started")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


STUCK = """
import asyncio, signal, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from unit.runtime.scripted_core import ORDERS, ScriptedConsumer, result, until
from asyncrevoke.consumer import RebalanceListener
from asyncrevoke.client.core.io.effects import Notify, NotifyKind

async def ignoring_cancellation():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

class Stuck(RebalanceListener):
    async def on_partitions_revoked(self, revoked):
        await ignoring_cancellation()

listener = Stuck() if {what!r} == "listener" else None
consumer = ScriptedConsumer(group_id="billing", close_timeout={close_timeout}, listener=listener)

@consumer.handler("orders")
async def handle(value: bytes) -> None:
    print("started", flush=True)
    if {what!r} == "handler":
        await ignoring_cancellation()
    elif {what!r} == "loop":
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            time.sleep(0.01)
        print("signalled", flush=True)
        time.sleep(3600)

def revoke(call_id, graceful):
    consumer.core.effects.append(Notify(NotifyKind.REVOKED, frozenset([ORDERS])))
    consumer.core.close_at_once(call_id, graceful)

async def main() -> None:
    running = asyncio.create_task(consumer.run())
    await until(lambda: hasattr(consumer, "session"))
    consumer.core.on_close = revoke
    consumer.deliver(result(1))
    await running
    print("closed", flush=True)

asyncio.run(main())
print("returned", flush=True)
"""


def start_stuck(what: str, close_timeout: float) -> subprocess.Popen[str]:
    code = STUCK.format(
        root=str(ROOT), tests=str(ROOT / "tests"), what=what, close_timeout=close_timeout
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("what", ["handler", "listener"])
def test_asyncio_run_returns_though_a_callback_ignores_its_cancellation(what: str) -> None:
    with start_stuck(what, 1.0) as process:
        try:
            read_until(process, "started")
            process.send_signal(signal.SIGTERM)
            read_until(process, "returned")
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_a_signal_ends_a_process_whose_event_loop_is_blocked_after_close_timeout() -> None:
    with start_stuck("loop", 1.0) as process:
        try:
            read_until(process, "started")
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_second_signal_ends_a_process_whose_event_loop_is_blocked_at_once() -> None:
    with start_stuck("loop", 3600.0) as process:
        try:
            read_until(process, "started")
            process.send_signal(signal.SIGTERM)
            read_until(process, "signalled")
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == -signal.SIGTERM
        finally:
            process.kill()
