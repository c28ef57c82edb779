"""Keeps Spark's garbage collections away from modules."""

from __future__ import annotations

import gc
from itertools import count

_EXCLUDING_CALLS = 2

_calls = count()


def exclude_modules_from_collections() -> None:
    """Keep Spark's garbage collections from visiting the modules. Called when Spark begins to use a
    Python process, because Spark collects garbage after each task and each planning.

    The first call excludes the modules that are loaded, the second one those that were imported in
    between. Later calls do nothing: what is excluded is never freed.
    """
    if next(_calls) < _EXCLUDING_CALLS:
        gc.freeze()
