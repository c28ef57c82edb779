"""A pytest plugin: tests run on uvloop, and it says on how many loops.

Use it by ``-p broker.connections.on_uvloop``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    import pytest

made: list[asyncio.AbstractEventLoop] = []


def new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    made.append(loop)
    return loop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": new_event_loop}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"loops of uvloop: {len(made)}")
