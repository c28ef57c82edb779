"""Loads the library's own fixtures where it is not installed with its entry point. Examples of
property tests have no time limit: how long one takes says how busy the machine is. No test may
leave a handler of a signal behind."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGIN = "asyncrevoke.testing.pytest_plugin"


def pytest_configure(config: pytest.Config) -> None:
    plugins = config.pluginmanager
    if not any(getattr(plugin, "__name__", "") == PLUGIN for plugin in plugins.get_plugins()):
        plugins.import_plugin(PLUGIN)
    with suppress(ModuleNotFoundError):
        from hypothesis import settings

        settings.register_profile("asyncrevoke", deadline=None)
        settings.load_profile("asyncrevoke")


@pytest.fixture(autouse=True)
def restored_signal_handlers() -> Iterator[None]:
    """Processes that later tests start would inherit a signal that is ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert after == before
