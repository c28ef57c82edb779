"""Loads the library's own fixtures where it is not installed with its entry point. Examples of
property tests have no time limit: how long one takes says how busy the machine is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PLUGIN = "asyncrevoke.testing.pytest_plugin"


def pytest_configure(config: pytest.Config) -> None:
    plugins = config.pluginmanager
    if not any(getattr(plugin, "__name__", "") == PLUGIN for plugin in plugins.get_plugins()):
        plugins.import_plugin(PLUGIN)
    with suppress(ModuleNotFoundError):
        from hypothesis import settings

        settings.register_profile("asyncrevoke", deadline=None)
        settings.load_profile("asyncrevoke")
