"""A member of the group as a process of its own, told over a pipe what to do."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import NamedTuple, Protocol

from benchmarks.clients.stall_clients import CLIENTS, Group
from benchmarks.workload.stall_work import Work


class Pipe(Protocol):
    """One end of a pipe between processes."""

    def send(self, obj: object) -> None:
        """Send a value that can be pickled."""
        ...

    def recv(self) -> object:
        """Wait for a value; EOFError if the other end is closed."""
        ...

    def poll(self, timeout: float) -> bool:
        """Whether a value comes within ``timeout`` seconds."""
        ...


class Seen(NamedTuple):
    """What a member has seen, in seconds of the monotonic clock, by partition."""

    began: float
    delivered: dict[int, list[float]]
    asked_back: dict[int, float]


def run_member(client: str, group: Group, drain: float, pipe: Pipe) -> None:
    """Read until told to stop; blocks.

    Sends ("reading", partition) at the first record of each partition, ("held", None) when a
    record of each is held, and at the end ("seen", Seen) or ("failed", traceback). Takes "hold"
    and "stop".
    """
    try:
        asyncio.run(_run(client, group, drain, pipe))
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(("failed", traceback.format_exc()))


async def _run(client: str, group: Group, drain: float, pipe: Pipe) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    work = Work(
        drain,
        reading=lambda partition: pipe.send(("reading", partition)),
        held_all=lambda: pipe.send(("held", None)),
    )

    def end() -> None:
        work.finish()
        stop.set()

    def listen() -> None:
        while True:
            command = pipe.recv()
            loop.call_soon_threadsafe(work.hold if command == "hold" else end)
            if command == "stop":
                return

    threading.Thread(target=listen, daemon=True).start()
    await CLIENTS[client](group, work, stop)
    delivered = {partition: list(times) for partition, times in work.times.items()}
    pipe.send(("seen", Seen(work.began, delivered, work.asked)))
