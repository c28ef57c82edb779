"""Loads the library's own fixtures where it is not installed with its entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PLUGIN = "asyncrevoke.testing.pytest_plugin"


def pytest_configure(config: pytest.Config) -> None:
    plugins = config.pluginmanager
    if not any(getattr(plugin, "__name__", "") == PLUGIN for plugin in plugins.get_plugins()):
        plugins.import_plugin(PLUGIN)
