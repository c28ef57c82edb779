"""Imports kio without Hypothesis; modules that import kio first import this one before it.

kio imports Hypothesis where it is installed, for strategies of its types, and Hypothesis imports
pytest and trio: three times as many modules as a consumer needs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


def _import_kio() -> None:
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    if "hypothesis" in modules or "kio.static.primitive" in modules:
        return
    modules["hypothesis"] = None
    try:
        import_module("kio.static.primitive")
    finally:
        del modules["hypothesis"]


_import_kio()
