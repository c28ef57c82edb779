"""SIGINT and SIGTERM: the first one drains, the second one ends the process at once."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def drain_on_signals(drain: Callable[[signal.Signals], None]) -> Generator[None]:
    """Inside, the first signal calls ``drain`` on the event loop; the next one kills the process.

    Needs the main thread, as signals do; elsewhere nothing is installed, and signals stay the
    business of whoever runs the main thread.
    """
    loop = asyncio.get_running_loop()
    installed: list[signal.Signals] = []

    def first(number: signal.Signals) -> None:
        # Not asyncio's handler, nor ours: what does not return cannot hold up a second one.
        for one in installed:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        drain(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number in _SIGNALS:
            try:
                loop.add_signal_handler(number, first, number)
            except (NotImplementedError, RuntimeError, ValueError):
                # No such thing on this event loop (Windows), or not in the main thread.
                break
            installed.append(number)
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
            # None: what was there does not come from Python, and cannot be put back by it.
            signal.signal(number, before[number] or signal.SIG_DFL)
